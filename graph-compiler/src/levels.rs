//! Levels of lints, and the settings files in which they are set.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_definition::code::{self, ALL, DiagnosticCode, Level};
use graph_definition::diagnostic::{Diagnostic, Diagnostics, Severity, SourcePlace};
use graph_definition::source::SourceFile;
use graph_definition::verify::verify;
use graph_signing::KeyRing;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::files::is_there;
use crate::schedules::{self, ScheduleDefinition};

/// The name of a settings file. A tree may have one in each of its directories.
pub const SETTINGS: &str = "graphs.toml";

/// The level of each lint at one place of a tree.
///
/// A lint that is not set has the level of its [`DiagnosticCode`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Levels(BTreeMap<&'static str, Level>);

impl Levels {
    /// Returns the level of a lint; `None` for a code that is always an error.
    pub fn of(&self, code: DiagnosticCode) -> Option<Level> {
        let usual = code.lint?;
        Some(self.0.get(code.id).copied().unwrap_or(usual))
    }

    /// Sets the level of a lint. Has no effect on a code that is always an error.
    pub fn set(&mut self, code: DiagnosticCode, level: Level) {
        if code.lint.is_some() {
            self.0.insert(code.id, level);
        }
    }

    /// Sets the severity of lint diagnostics by their level, and drops those that are allowed. Errors that are not lints stay.
    ///
    /// Applying levels again is allowed: only the codes decide.
    pub fn apply(&self, diagnostics: &mut Diagnostics) {
        diagnostics.retain_kinds(|diagnostic| match self.of(diagnostic.code) {
            Some(Level::Allow) => false,
            Some(Level::Warn) => {
                diagnostic.severity = Severity::Warning;
                true
            }
            Some(Level::Deny) => {
                diagnostic.severity = Severity::Error;
                true
            }
            None => true,
        });
    }
}

/// The settings in one file.
#[derive(Debug)]
pub(crate) struct LintSettings {
    /// The file.
    pub(crate) path: PathBuf,
    lints: Vec<(DiagnosticCode, Level)>,
    /// The schedules, without those that have mistakes.
    pub(crate) schedules: Vec<ScheduleDefinition>,
    /// Why the file is not trusted or cannot be read; if there is a reason, a compilation ignores its settings.
    refused: Diagnostics,
    /// The mistakes in the file's content.
    mistakes: Diagnostics,
}

impl LintSettings {
    /// Reads a signed settings file. Only that of the tree itself has schedules.
    pub(crate) fn read(
        path: &Path,
        source: Result<Arc<SourceFile>, Box<Diagnostic>>,
        ring: &KeyRing,
        is_of_tree: bool,
    ) -> Self {
        let mut settings = Self {
            path: path.to_owned(),
            lints: Vec::new(),
            schedules: Vec::new(),
            refused: Diagnostics::new(),
            mistakes: Diagnostics::new(),
        };
        match source {
            Ok(source) => {
                settings.refused.extend(verify(&source, ring).err().map(|problem| *problem));
                settings.parse(&source, is_of_tree);
            }
            Err(problem) => settings.refused.push(*problem),
        }
        settings
    }

    /// Reads `[package.metadata.graphs]` of a manifest; `None` where there is no manifest, or no such table in it.
    ///
    /// A manifest is not signed: it is part of the program, and decides which code runs anyway.
    pub(crate) fn of_manifest(path: &Path, name: &str) -> Option<Self> {
        if matches!(is_there(path.parent()?, path), Ok(false)) {
            return None;
        }
        let source = match SourceFile::read(path, name) {
            Ok(source) => source,
            // The manifest may deny lints that nothing else denies, so it must not be ignored.
            Err(problem) => {
                return Some(Self {
                    path: path.to_owned(),
                    lints: Vec::new(),
                    schedules: Vec::new(),
                    refused: Diagnostics::from(*problem),
                    mistakes: Diagnostics::new(),
                });
            }
        };
        // Cargo reports a manifest that is not TOML.
        let manifest = DeTable::parse(&source.text).ok()?;
        let metadata = manifest.get_ref().get("package")?.get_ref().get("metadata")?;
        let graphs = metadata.get_ref().get("graphs")?.get_ref();
        let mut settings = Self {
            path: path.to_owned(),
            lints: Vec::new(),
            schedules: Vec::new(),
            refused: Diagnostics::new(),
            mistakes: Diagnostics::new(),
        };
        let elsewhere = Some("nobody signs a manifest: schedules are in the file `graphs.toml` of the tree");
        let mut reader = SettingsReader { source: &source, settings: &mut settings, elsewhere };
        match graphs.as_table() {
            Some(table) => reader.settings(table, "`package.metadata.graphs`"),
            None => {
                let message = format!("`package.metadata.graphs` is a table, not {}", described(graphs));
                settings.mistakes.error(code::BAD_SETTINGS, SourcePlace::file(&source), message);
            }
        }
        Some(settings)
    }

    fn parse(&mut self, source: &Arc<SourceFile>, is_of_tree: bool) {
        match DeTable::parse(&source.text) {
            Ok(table) => {
                let elsewhere = (!is_of_tree).then_some("schedules are in the settings file of the tree itself");
                SettingsReader { source, settings: self, elsewhere }.settings(table.get_ref(), "the file");
            }
            Err(error) => {
                let place =
                    error.span().map_or_else(|| SourcePlace::file(source), |span| SourcePlace::new(source, span));
                let message = format!("`{}` is not TOML: {}", source.name, error.message());
                self.mistakes.error(code::BAD_SETTINGS, place, message);
            }
        }
    }

    /// Returns the schedules.
    ///
    /// # Errors
    ///
    /// If the file is not trusted, or has mistakes.
    pub(crate) fn schedules(&self) -> Result<&[ScheduleDefinition], Vec<Diagnostic>> {
        let problems: Vec<Diagnostic> = self.refused.iter().chain(self.mistakes.iter()).cloned().collect();
        if problems.is_empty() { Ok(&self.schedules) } else { Err(problems) }
    }

    /// Applies the file's levels, and reports its mistakes.
    ///
    /// With `is_review`, an unverified file is also applied. A review is of a graph that its author is still editing,
    /// and yields no compiled graph.
    pub(crate) fn add_to(&self, levels: &mut Levels, diagnostics: &mut Diagnostics, is_review: bool) {
        diagnostics.append(&self.refused);
        if is_review || self.refused.is_empty() {
            diagnostics.append(&self.mistakes);
            self.lints.iter().for_each(|&(code, level)| levels.set(code, level));
        }
    }
}

/// Parses a settings file and collects its mistakes.
struct SettingsReader<'a> {
    source: &'a Arc<SourceFile>,
    settings: &'a mut LintSettings,
    /// Why the file has no schedules, if it may not have them.
    elsewhere: Option<&'static str>,
}

impl SettingsReader<'_> {
    fn place(&self, span: Range<usize>) -> SourcePlace {
        SourcePlace::new(self.source, span)
    }

    fn settings(&mut self, table: &DeTable<'_>, whose: &str) {
        for (key, value) in table {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("lints", DeValue::Table(lints)) => lints.iter().for_each(|(key, value)| self.lint(key, value)),
                ("lints", other) => {
                    let (message, place) = (format!("`lints` is a table, not {}", described(other)), value.span());
                    let place = self.place(place);
                    self.settings
                        .mistakes
                        .error(code::BAD_SETTINGS, place, message)
                        .help("write `[lints]`, and below it the levels by code: `G0150 = \"warn\"`");
                }
                ("schedules", DeValue::Table(schedules)) => match self.elsewhere {
                    None => {
                        let found = schedules::read(self.source, schedules, &mut self.settings.mistakes);
                        self.settings.schedules.extend(found);
                    }
                    Some(note) => {
                        let (message, place) = (format!("{whose} cannot have schedules"), self.place(key.span()));
                        self.settings.mistakes.error(code::BAD_SETTINGS, place, message).note(note);
                    }
                },
                ("schedules", other) => {
                    let (message, place) = (format!("`schedules` is a table, not {}", described(other)), value.span());
                    let place = self.place(place);
                    let help = "write `[schedules.ID]`, and below it `graph`, `cron` and `zone`";
                    self.settings.mistakes.error(code::BAD_SETTINGS, place, message).help(help);
                }
                (other, _) => {
                    let place = self.place(key.span());
                    self.settings
                        .mistakes
                        .error(code::BAD_SETTINGS, place, format!("{whose} has no field `{other}`"))
                        .label("unknown field")
                        .note("its fields are `lints` and `schedules`")
                        .suggest(other, ["lints", "schedules"]);
                }
            }
        }
    }

    fn lint(&mut self, key: &Spanned<DeString<'_>>, value: &Spanned<DeValue<'_>>) {
        let (id, place) = (key.get_ref().as_ref(), self.place(key.span()));
        let value_place = self.place(value.span());
        let mistakes = &mut self.settings.mistakes;
        let code = DiagnosticCode::named(id);
        match code {
            None => {
                let lints = ALL.iter().filter(|code| code.lint.is_some()).map(|code| code.id);
                mistakes
                    .error(code::BAD_SETTINGS, place, format!("there is no lint `{id}`"))
                    .label("unknown code")
                    .note("`graph explain` lists all codes")
                    .suggest(id, lints);
            }
            Some(code) if code.lint.is_none() => {
                mistakes
                    .error(code::BAD_SETTINGS, place, format!("`{id}` is always an error, and has no level"))
                    .label(code.title)
                    .note("only lints have levels; `graph explain` lists them");
            }
            Some(_) => {}
        }
        let names = Level::TABLE.map(|(_, name)| name);
        match value.get_ref() {
            DeValue::String(name) => match (Level::named(name), code) {
                (Some(level), Some(code)) => self.settings.lints.push((code, level)),
                (Some(_), None) => {}
                (None, _) => {
                    mistakes
                        .error(
                            code::BAD_SETTINGS,
                            value_place,
                            format!("a level is `allow`, `warn` or `deny`, not `{name}`"),
                        )
                        .suggest(name, names);
                }
            },
            other => {
                mistakes
                    .error(
                        code::BAD_SETTINGS,
                        value_place,
                        format!("a level is `allow`, `warn` or `deny` in quotes, not {}", described(other)),
                    )
                    .help(format!("write `{id} = \"warn\"`"));
            }
        }
    }
}

/// Names the kind of a value.
pub(crate) fn described(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use graph_signing::{ItemKind, SecretKey, sign};

    use super::*;

    /// A lint for these tests that is not in the table of codes.
    const LINT: DiagnosticCode = DiagnosticCode { id: "G9999", title: "", explanation: "", lint: Some(Level::Warn) };

    fn key() -> SecretKey {
        SecretKey::from_seed(&[3; 32])
    }

    fn read(text: &str) -> LintSettings {
        let source = SourceFile::new("graphs/graphs.toml", "graphs/graphs.toml", text);
        LintSettings::read(Path::new("graphs/graphs.toml"), Ok(source), &KeyRing::of(&key().public(), "tester"), true)
    }

    fn said(settings: &LintSettings, is_review: bool) -> Vec<String> {
        let (mut levels, mut diagnostics) = (Levels::default(), Diagnostics::new());
        settings.add_to(&mut levels, &mut diagnostics, is_review);
        diagnostics.iter().map(|one| format!("{} {} {}", one.location(), one.code.id, one.message)).collect()
    }

    #[test]
    fn a_level_decides_whether_a_lint_is_dropped_warns_or_fails() {
        let source = SourceFile::new("g.yaml", "g.yaml", "a: 1\n");
        let levelled = |level| {
            let (mut levels, mut diagnostics) = (Levels::default(), Diagnostics::new());
            levels.set(LINT, level);
            levels.set(code::YAML, Level::Allow);
            diagnostics.lint(LINT, SourcePlace::file(&source), "a slip");
            diagnostics.error(code::YAML, SourcePlace::file(&source), "a mistake");
            levels.apply(&mut diagnostics);
            levels.apply(&mut diagnostics);
            diagnostics.iter().map(|one| (one.code.id, one.severity)).collect::<Vec<_>>()
        };
        let error = ("G0020", Severity::Error);
        assert_eq!(levelled(Level::Allow), [error]);
        assert_eq!(levelled(Level::Warn), [("G9999", Severity::Warning), error]);
        assert_eq!(levelled(Level::Deny), [("G9999", Severity::Error), error]);
        assert_eq!(Levels::default().of(LINT), Some(Level::Warn));
        assert_eq!(Levels::default().of(code::YAML), None);
    }

    #[test]
    fn each_mistake_in_a_settings_file_is_reported_at_its_place() {
        let signed = |text: &str| sign(ItemKind::YAML, text, &key(), SystemTime::UNIX_EPOCH).unwrap();
        let settings = read(&signed("[lints]\nG0102 = \"warn\"\nG0 = \"deny\"\nG0017 = 3\n\n[lint]\n"));
        assert_eq!(
            said(&settings, false),
            [
                "graphs/graphs.toml:7:2 G0017 the file has no field `lint`",
                "graphs/graphs.toml:4:1 G0017 there is no lint `G0`",
                "graphs/graphs.toml:5:1 G0017 `G0017` is always an error, and has no level",
                "graphs/graphs.toml:5:9 G0017 a level is `allow`, `warn` or `deny` in quotes, not a number",
                "graphs/graphs.toml:3:1 G0017 `G0102` is always an error, and has no level",
            ]
        );
        let settings = read(&signed("[lints]\nG0102 = \"wran\"\n"));
        assert_eq!(said(&settings, false).len(), 2);
        assert_eq!(settings.mistakes.iter().last().unwrap().help.as_deref(), Some("did you mean `warn`?"));
        assert_eq!(
            said(&read(&signed("lints = 3\n")), false),
            ["graphs/graphs.toml:2:9 G0017 `lints` is a table, not a number"]
        );
        assert!(
            said(&read(&signed("[lints\n")), false)[0]
                .starts_with("graphs/graphs.toml:2:7 G0017 `graphs/graphs.toml` is not TOML: ")
        );
        assert!(said(&read(&signed("[lints]\n")), false).is_empty());
    }

    #[test]
    fn unsigned_settings_have_no_effect_in_a_compilation() {
        let unsigned = read("[lints]\nG0102 = \"warn\"\n");
        assert_eq!(said(&unsigned, false), ["graphs/graphs.toml:1:1 G0010 `graphs/graphs.toml` is not signed"]);
        assert_eq!(said(&unsigned, true).len(), 2, "a review looks at it all the same");
        let signed = sign(ItemKind::YAML, "[lints]\n", &key(), SystemTime::UNIX_EPOCH).unwrap();
        let altered = said(&read(&signed.replace("[lints]", "[lints] ")), false);
        assert!(altered[0].contains("G0011"), "{altered:?}");
    }

    #[test]
    fn a_manifest_is_read_as_far_as_it_is_about_graphs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("Cargo.toml");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            LintSettings::of_manifest(&path, "Cargo.toml").map(|settings| said(&settings, false))
        };
        assert_eq!(read("[package]\nname = \"a\"\n"), None);
        assert_eq!(read("[workspace]\n"), None);
        assert_eq!(read("[package"), None, "cargo reports that");
        assert_eq!(
            read("[package.metadata.graphs.lints]\nG0102 = \"warn\"\n"),
            Some(vec!["Cargo.toml:2:1 G0017 `G0102` is always an error, and has no level".to_owned()])
        );
        assert_eq!(
            read("[package.metadata]\ngraphs = 1\n"),
            Some(vec!["Cargo.toml G0017 `package.metadata.graphs` is a table, not a number".to_owned()])
        );
    }
}
