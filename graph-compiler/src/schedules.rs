//! Schedules in settings files: `[schedules]`.

use std::ops::Range;
use std::sync::Arc;

use graph_definition::code;
use graph_definition::diagnostic::{Diagnostic, Diagnostics, SourcePlace};
use graph_definition::source::SourceFile;
use graph_model::name::{GraphId, ScheduleId};
use graph_model::schedule::{CatchUp, Overlap};
#[cfg(feature = "schedules")]
use graph_model::timetable::{Timetable, TimetableError};
use graph_model::value::{Map, Value};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::levels::described;

/// A schedule as a settings file defines it.
#[derive(Debug, Clone)]
pub struct ScheduleDefinition {
    /// Its id.
    pub id: ScheduleId,
    /// The id of its graph.
    pub graph: GraphId,
    /// Its cron expression.
    pub cron: String,
    /// The name of its time zone.
    pub zone: String,
    /// The policy for ticks that overlap.
    pub overlap: Overlap,
    /// The policy for ticks that were missed.
    pub catch_up: CatchUp,
    /// The name of the input that is the tick.
    pub tick: Option<String>,
    /// The other inputs.
    pub inputs: Map<String, Value>,
    pub(crate) places: SchedulePlaces,
}

/// The places of a schedule's parts in its file.
#[derive(Debug, Clone)]
pub(crate) struct SchedulePlaces {
    pub(crate) graph: SourcePlace,
    inputs: SourcePlace,
}

impl ScheduleDefinition {
    /// Returns the mistake that its graph does not accept its inputs, at their place.
    pub fn misfit(&self, reason: &str) -> Diagnostic {
        Diagnostic::new(code::BAD_SETTINGS, reason.to_owned(), self.places.inputs.clone())
    }
}

/// The fields of a schedule.
const FIELDS: [&str; 7] = ["catch_up", "cron", "graph", "inputs", "overlap", "tick", "zone"];

/// The maximum number of levels of lists and tables in an input.
const DEEPEST: usize = 64;

/// Reads the table `schedules` of a settings file.
pub(crate) fn read(
    source: &Arc<SourceFile>,
    table: &DeTable<'_>,
    mistakes: &mut Diagnostics,
) -> Vec<ScheduleDefinition> {
    let mut schedules = Vec::new();
    for (key, value) in table {
        let mut reader = ScheduleReader { source, mistakes, has_mistake: false };
        let id = match ScheduleId::new(key.get_ref().as_ref()) {
            Ok(id) => Some(id),
            Err(error) => reader.mistake(key.span(), error.to_string()),
        };
        let Some(fields) = value.get_ref().as_table() else {
            let message = format!("a schedule is a table, not {}", described(value.get_ref()));
            let id = key.get_ref();
            let help = format!("write `[schedules.{id}]`, and below it `graph`, `cron` and `zone`");
            reader.error(value.span(), message).help(help);
            continue;
        };
        schedules.extend(reader.schedule(id, key, fields));
    }
    schedules
}

/// Parses one schedule and collects its mistakes.
struct ScheduleReader<'a> {
    source: &'a Arc<SourceFile>,
    mistakes: &'a mut Diagnostics,
    has_mistake: bool,
}

impl ScheduleReader<'_> {
    fn place(&self, span: Range<usize>) -> SourcePlace {
        SourcePlace::new(self.source, span)
    }

    fn error(&mut self, span: Range<usize>, message: String) -> &mut Diagnostic {
        self.has_mistake = true;
        let place = self.place(span);
        self.mistakes.error(code::BAD_SETTINGS, place, message)
    }

    fn mistake<T>(&mut self, span: Range<usize>, message: String) -> Option<T> {
        self.error(span, message);
        None
    }

    fn schedule(
        &mut self,
        id: Option<ScheduleId>,
        key: &Spanned<DeString<'_>>,
        fields: &DeTable<'_>,
    ) -> Option<ScheduleDefinition> {
        for (name, _) in fields {
            let name_text = name.get_ref().as_ref();
            if !FIELDS.contains(&name_text) {
                self.error(name.span(), format!("a schedule has no field `{name_text}`"))
                    .label("unknown field")
                    .suggest(name_text, FIELDS);
            }
        }
        let of = |name: &str| fields.get(name);
        let graph_id = self.required(key, fields, "graph", "shop/report");
        let graph = graph_id.and_then(|(text, span)| match GraphId::new(text) {
            Ok(graph) => Some((graph, span)),
            Err(error) => self.mistake(span, error.to_string()),
        });
        let cron = self.required(key, fields, "cron", "0 2 * * *");
        let zone = self.required(key, fields, "zone", "Europe/Berlin");
        if let (Some(cron), Some(zone)) = (&cron, &zone) {
            self.check_times(cron, zone);
        }
        let overlap = of("overlap").map_or(Some(Overlap::default()), |value| self.overlap(value));
        let catch_up = of("catch_up").map_or(Some(CatchUp::default()), |value| self.catch_up(value));
        if let (Some(Overlap::Cancel), Some(CatchUp::All(_)), Some(value)) = (overlap, catch_up, of("catch_up")) {
            let message = "each of the ticks that it catches up would cancel the run of the one before".to_owned();
            self.error(value.span(), message).help("write `catch_up = \"last\"`, or another `overlap`");
        }
        let tick = of("tick").map(|value| self.text(value, "tick", "at"));
        let inputs = match of("inputs").map(|value| (value.get_ref(), value.span())) {
            None => Some(Map::new()),
            Some((DeValue::Table(table), _)) => self.table(table, 0),
            Some((other, span)) => self.mistake(span, format!("`inputs` is a table, not {}", described(other))),
        };
        if let (Some(Some((tick, span))), Some(inputs)) = (&tick, &inputs)
            && inputs.contains_key(tick)
        {
            self.error(span.clone(), format!("the input `{tick}` is to be the tick, and has a value in `inputs` too"));
        }
        let inputs_place = self.place(of("inputs").map_or(key.span(), Spanned::span));
        if self.has_mistake {
            return None;
        }
        let (graph, span) = graph?;
        Some(ScheduleDefinition {
            id: id?,
            graph,
            cron: cron?.0,
            zone: zone?.0,
            overlap: overlap?,
            catch_up: catch_up?,
            tick: tick.flatten().map(|(tick, _)| tick),
            inputs: inputs?,
            places: SchedulePlaces { graph: self.place(span), inputs: inputs_place },
        })
    }

    /// Reads a text that a schedule must have.
    fn required(
        &mut self,
        key: &Spanned<DeString<'_>>,
        fields: &DeTable<'_>,
        name: &str,
        example: &str,
    ) -> Option<(String, Range<usize>)> {
        match fields.get(name) {
            Some(value) => self.text(value, name, example),
            None => {
                let message = format!("schedule `{}` has no field `{name}`", key.get_ref());
                self.error(key.span(), message).help(format!("write `{name} = \"{example}\"`"));
                None
            }
        }
    }

    fn text(&mut self, value: &Spanned<DeValue<'_>>, name: &str, example: &str) -> Option<(String, Range<usize>)> {
        match value.get_ref() {
            DeValue::String(text) => Some((text.as_ref().to_owned(), value.span())),
            other => {
                let message = format!("`{name}` is a text, not {}", described(other));
                self.error(value.span(), message).help(format!("write `{name} = \"{example}\"`"));
                None
            }
        }
    }

    #[cfg(feature = "schedules")]
    fn check_times(&mut self, (cron, cron_span): &(String, Range<usize>), (zone, zone_span): &(String, Range<usize>)) {
        let Err(error) = Timetable::new(cron, zone) else { return };
        let span = if error.is_about_zone() { zone_span } else { cron_span };
        let message = error.to_string();
        let diagnostic = self.error(span.clone(), message);
        if let TimetableError::Zone { meant, .. } = error {
            diagnostic.note("time zones have the names of the IANA database, as `Europe/Berlin` and `UTC`");
            if let Some(meant) = meant {
                diagnostic.help(format!("did you mean `{meant}`?"));
            }
        }
    }

    #[cfg(not(feature = "schedules"))]
    fn check_times(&mut self, _: &(String, Range<usize>), _: &(String, Range<usize>)) {}

    fn overlap(&mut self, value: &Spanned<DeValue<'_>>) -> Option<Overlap> {
        let names = Overlap::TABLE.map(|(_, name)| name);
        let expected = "`overlap` is `skip`, `queue` or `cancel`";
        match value.get_ref() {
            DeValue::String(name) => match Overlap::named(name) {
                Some(overlap) => Some(overlap),
                None => {
                    self.error(value.span(), format!("{expected}, not `{name}`")).suggest(name, names);
                    None
                }
            },
            other => self.mistake(value.span(), format!("{expected} in quotes, not {}", described(other))),
        }
    }

    fn catch_up(&mut self, value: &Spanned<DeValue<'_>>) -> Option<CatchUp> {
        let expected = "`catch_up` is `\"none\"`, `\"last\"` or `{ all = N }`";
        let all = |table: &DeTable<'_>| match (table.len(), table.get("all").map(Spanned::get_ref)) {
            (1, Some(DeValue::Integer(count))) => u32::from_str_radix(count.as_str(), count.radix()).ok(),
            _ => None,
        };
        match value.get_ref() {
            DeValue::String(name) if name == "none" => Some(CatchUp::None),
            DeValue::String(name) if name == "last" => Some(CatchUp::Last),
            DeValue::String(name) => {
                self.error(value.span(), format!("{expected}, not `\"{name}\"`")).suggest(name, ["none", "last"]);
                None
            }
            DeValue::Table(table) => match all(table) {
                Some(count @ 1..=CatchUp::MOST) => Some(CatchUp::All(count)),
                _ => {
                    let most = CatchUp::MOST;
                    self.mistake(value.span(), format!("{expected}, where `N` is a number from 1 to {most}"))
                }
            },
            other => self.mistake(value.span(), format!("{expected}, not {}", described(other))),
        }
    }

    fn table(&mut self, table: &DeTable<'_>, depth: usize) -> Option<Map<String, Value>> {
        let value = |(key, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
            Some((key.get_ref().as_ref().to_owned(), self.value(value, depth)?))
        };
        table.iter().map(value).collect()
    }

    /// Reads a literal. A time is the text that the file has.
    fn value(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return self.mistake(value.span(), format!("an input has at most {DEEPEST} levels"));
        }
        let number = |text: &str| serde_json::from_str::<Value>(text).ok().filter(Value::is_number);
        let read = match value.get_ref() {
            DeValue::String(text) => Some(Value::from(text.as_ref())),
            DeValue::Boolean(is) => Some(Value::from(*is)),
            DeValue::Datetime(time) => Some(Value::from(time.to_string())),
            DeValue::Integer(integer) if integer.radix() == 10 => number(integer.as_str().trim_start_matches('+')),
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok().map(Value::from),
            DeValue::Float(float) => number(float.as_str().trim_start_matches('+')),
            DeValue::Array(list) => {
                return list
                    .iter()
                    .map(|element| self.value(element, depth + 1))
                    .collect::<Option<Vec<_>>>()
                    .map(Value::from);
            }
            DeValue::Table(table) => return self.table(table, depth + 1).map(Value::Object),
        };
        match read {
            Some(read) => Some(read),
            None => self.mistake(value.span(), "this number cannot be an input".to_owned()),
        }
    }
}
