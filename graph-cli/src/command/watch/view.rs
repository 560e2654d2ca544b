//! Draws the viewer's screen. Only the rows that are visible are made.

use graph_model::timestamp;
use graph_runtime::record::Status;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Widget};

use super::model::{KeyChange, KeyRow, NodeStatus};
use super::row::{Mark, PageLine, TimelineRow, compact, took, waits};
use super::screen::{FollowState, List, OpenedPage, Pane, Screen};
use super::text::{brief, cut, one_line, padded, width_of, wrapped};
use crate::output::counted;

/// The screens from this size on have borders around their panes.
const BORDERS: (u16, u16) = (30, 10);
/// The screens from this size on have all panes beside the timeline.
const ALL_PANES: (u16, u16) = (100, 16);
/// The screens from this height on have two panes below the timeline.
const TWO_PANES: (u16, u16) = (60, 18);

/// The styles of what is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Theme {
    /// Whether there are colours: `NO_COLOR` is not set.
    pub(super) is_coloured: bool,
}

impl Theme {
    fn colour(self, colour: Color) -> Style {
        if self.is_coloured { Style::new().fg(colour) } else { Style::new() }
    }

    fn good(self) -> Style {
        self.colour(Color::Green)
    }

    fn bad(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD)
    }

    fn busy(self) -> Style {
        self.colour(Color::Cyan)
    }

    fn waiting(self) -> Style {
        self.colour(Color::Yellow)
    }

    fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn mark(self, mark: Mark) -> Style {
        match mark {
            Mark::Done => self.good(),
            Mark::Failed => self.bad(),
            Mark::Waits | Mark::Cancelled => self.waiting(),
            Mark::Begins | Mark::Continues | Mark::Edited => self.busy(),
            Mark::Live => self.faint(),
        }
    }
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen, theme: Theme) {
    let area = frame.area();
    let head = if area.height >= 8 { 2 } else { 1 };
    let [header, body, footer] =
        Layout::vertical([Constraint::Length(head), Constraint::Min(1), Constraint::Length(1)]).areas(area);
    let mut view = ScreenView { screen, theme, has_borders: fits(area, BORDERS), buffer: frame.buffer_mut() };
    view.header(header);
    match &screen.page {
        Some(open) => view.page(open, body),
        None => view.panes(area, body),
    }
    view.footer(footer);
    if screen.is_filtering {
        let column = width_of(&format!("/{}", one_line(&screen.filter)));
        let column = u16::try_from(column).unwrap_or(u16::MAX).min(footer.width.saturating_sub(1));
        frame.set_cursor_position((footer.x + column, footer.y));
    }
}

fn fits(area: Rect, least: (u16, u16)) -> bool {
    area.width >= least.0 && area.height >= least.1
}

struct ScreenView<'v> {
    screen: &'v Screen,
    theme: Theme,
    has_borders: bool,
    buffer: &'v mut Buffer,
}

impl ScreenView<'_> {
    fn line(&mut self, area: Rect, row: u16, line: &Line<'_>) {
        if row < area.height {
            self.buffer.set_line(area.x, area.y + row, line, area.width);
        }
    }

    fn header(&mut self, area: Rect) {
        let (model, theme) = (&self.screen.model, self.theme);
        let (word, style) = self.status();
        let graph = model.events().first().and_then(|event| event.graph.as_ref());
        let mut first = vec![Span::styled(format!(" {}", one_line(model.run().as_str())), theme.strong())];
        first.push(Span::raw("  "));
        first.push(Span::styled(word, style));
        if let Some(graph) = graph {
            first.push(Span::styled(format!("  {}", one_line(graph.as_str())), theme.faint()));
        }
        if let Some(parent) = model.events().first().and_then(|event| event.parent.as_ref()) {
            let inside = format!("  inside step {} of {}", parent.step, one_line(parent.run.as_str()));
            first.push(Span::styled(inside, theme.faint()));
        }
        if let Some(holder) = model.holding.holder.as_ref().filter(|_| self.screen.following == FollowState::Live) {
            first.push(Span::styled(format!("  {}", brief(holder)), theme.faint()));
        }
        self.line(area, 0, &Line::from(first));
        let counts = model.counts();
        let mut second = format!(" {}", counted(counts.visits, "visit", "visits"));
        let open = model.open_waits().count() as u64;
        for (count, one, many) in [
            (counts.failures, "failure", "failures"),
            (counts.retries, "retry", "retries"),
            (counts.cached, "from the cache", "from the cache"),
            (open, "open wait", "open waits"),
            (model.nested().len() as u64, "nested run", "nested runs"),
        ] {
            if count > 0 {
                second.push_str(&format!("  {}", counted(count, one, many)));
            }
        }
        if let Some((first, last)) = model.times() {
            let ms = last.duration_since(first).unwrap_or_default().as_millis();
            second.push_str(&format!("  {}", took(u64::try_from(ms).unwrap_or(u64::MAX))));
            second.push_str(&format!("  since {}", timestamp::seconds(first)));
        }
        self.line(area, 1, &Line::from(second));
    }

    fn status(&self) -> (String, Style) {
        let (model, theme) = (&self.screen.model, self.theme);
        let said = model.end().and_then(|end| end.error.as_ref().filter(|error| *error != end.status.name()));
        let why = said.map_or_else(String::new, |error| format!(": {}", brief(error)));
        match (&self.screen.following, model.status()) {
            (FollowState::Failed(error), _) => (format!("{} {}", Mark::Failed.symbol(), brief(error)), theme.bad()),
            (FollowState::Reading, _) => ("reading its journal …".to_owned(), theme.busy()),
            (_, Some(Status::Completed)) => ("✓ completed".to_owned(), theme.good()),
            (_, Some(Status::CompletedWithErrors)) => ("✓ completed with errors".to_owned(), theme.waiting()),
            (_, Some(Status::Error)) => (format!("✗ error{why}"), theme.bad()),
            (_, Some(Status::Cancelled)) => (format!("⊘ cancelled{why}"), theme.waiting()),
            _ if model.holding.is_cancelling => ("▸ running, is asked to stop".to_owned(), theme.waiting()),
            _ if model.holding.is_waiting => ("‖ waiting".to_owned(), theme.waiting()),
            _ => ("▸ running".to_owned(), theme.busy()),
        }
    }

    fn footer(&mut self, area: Rect) {
        let (screen, theme) = (self.screen, self.theme);
        if screen.is_filtering {
            let filter = format!("/{}", one_line(&screen.filter));
            // Its end is what is being written.
            let mut from = filter.as_str();
            while width_of(from) >= usize::from(area.width.max(1)) {
                let mut rest = from.chars();
                rest.next();
                from = rest.as_str();
            }
            return self.line(area, 0, &Line::from(from));
        }
        let moves = if area.width >= 76 { "↑↓ PgUp PgDn Home End" } else { "↑↓" };
        let keys: &[(&str, &str)] = match (&screen.page, screen.filter.is_empty()) {
            (Some(_), _) => &[(moves, "scroll"), ("Esc", "back"), ("^C", "quit")],
            (None, true) => {
                &[(moves, "move"), ("Tab", "pane"), ("Enter", "open"), ("/", "filter"), ("f", "follow"), ("q", "quit")]
            }
            (None, false) => &[
                ("Esc", "all"),
                ("↑↓", "move"),
                ("Tab", "pane"),
                ("Enter", "open"),
                ("/", "filter"),
                ("f", "follow"),
                ("q", "quit"),
            ],
        };
        let mut spans = Vec::new();
        for (at, (key, what)) in keys.iter().enumerate() {
            spans.push(Span::styled(format!("{}{key}", if at == 0 { " " } else { "  " }), theme.strong()));
            spans.push(Span::styled(format!(" {what}"), theme.faint()));
        }
        self.line(area, 0, &Line::from(spans));
    }

    fn panes(&mut self, screen: Rect, body: Rect) {
        let focus = self.screen.focus;
        if fits(screen, ALL_PANES) {
            let [left, right] = Layout::horizontal([Constraint::Percentage(58), Constraint::Min(1)]).areas(body);
            let [nodes, state, waits] =
                Layout::vertical([Constraint::Fill(3), Constraint::Fill(4), Constraint::Fill(2)]).areas(right);
            self.pane(Pane::Timeline, left);
            self.pane(Pane::Nodes, nodes);
            self.pane(Pane::State, state);
            self.pane(Pane::Waits, waits);
        } else if fits(screen, TWO_PANES) {
            let [above, below] = Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)]).areas(body);
            let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(below);
            self.pane(Pane::Timeline, above);
            self.pane(Pane::Nodes, left);
            self.pane(if focus == Pane::Waits { Pane::Waits } else { Pane::State }, right);
        } else {
            self.pane(focus, body);
        }
    }

    /// Draws the border of a pane, and returns the area inside.
    fn frame(&mut self, title: &str, is_focused: bool, area: Rect) -> Rect {
        let style = if is_focused { self.theme.busy() } else { self.theme.faint() };
        if !self.has_borders {
            self.line(area, 0, &Line::styled(cut(title, usize::from(area.width)), self.theme.strong()));
            return Rect { y: area.y + 1.min(area.height), height: area.height.saturating_sub(1), ..area };
        }
        let title = cut(title, usize::from(area.width.saturating_sub(4)));
        let title = Span::styled(format!(" {title} "), self.theme.strong());
        // Without colours, only its lines show which pane has the focus.
        let lines = if is_focused { BorderType::Thick } else { BorderType::Plain };
        let block = Block::bordered().border_type(lines).border_style(style).title(title);
        let inside = block.inner(area);
        block.render(area, self.buffer);
        inside
    }

    fn pane(&mut self, pane: Pane, area: Rect) {
        let area = self.frame(&self.title(pane), self.screen.focus == pane, area);
        match pane {
            Pane::Timeline => self.timeline(area),
            Pane::Nodes => self.nodes(area),
            Pane::State => self.state(area),
            Pane::Waits => self.waits(area),
        }
    }

    fn title(&self, pane: Pane) -> String {
        let screen = self.screen;
        match pane {
            Pane::Timeline => {
                let (visible, all) = (screen.visible().len(), screen.model.events().len());
                let at = screen.timeline.selected(visible).map_or(0, |row| row + 1);
                let of = if screen.filter.is_empty() {
                    format!("{at}/{all}")
                } else {
                    format!("{at}/{visible} of {all} with “{}”", brief(&screen.filter))
                };
                let follows = if screen.follows_end { ", follows the end" } else { "" };
                format!("Timeline {of}{follows}")
            }
            Pane::Nodes => "Nodes".to_owned(),
            Pane::State => match screen.selected().map(|at| TimelineRow::of(&screen.model.events()[at])) {
                Some(TimelineRow { step: Some(step), .. }) => format!("State at step {step}"),
                _ => "State".to_owned(),
            },
            Pane::Waits => "Waits and nested runs".to_owned(),
        }
    }

    /// Draws the visible ones of `count` rows. `row` makes one, in a number of columns.
    fn list<'l>(&mut self, pane: Pane, list: &List, count: usize, area: Rect, row: impl Fn(usize, usize) -> Line<'l>) {
        let width = usize::from(area.width);
        for (place, at) in list.shown(count, usize::from(area.height)).enumerate() {
            let Ok(place) = u16::try_from(place) else { return };
            self.line(area, place, &row(at, width));
            // In the other panes, a selected row would only distract; that of the timeline is what they are about.
            let is_shown = self.screen.focus == pane || pane == Pane::Timeline;
            if is_shown && list.selected(count) == Some(at) {
                let row = Rect { y: area.y + place, height: 1, ..area };
                self.buffer.set_style(row, self.theme.selected());
            }
        }
    }

    fn empty(&mut self, area: Rect, text: &'static str) {
        self.line(area, 0, &Line::styled(text, self.theme.faint()));
    }

    fn timeline(&mut self, area: Rect) {
        let (screen, theme) = (self.screen, self.theme);
        let visible = screen.visible();
        if visible.is_empty() {
            return self.empty(area, if screen.filter.is_empty() { "no events yet" } else { "no event has this" });
        }
        let events = screen.model.events();
        let steps = events.len().to_string().len().max(2);
        let node_width = screen.model.nodes().iter().map(|node| width_of(&brief(&node.name))).max().unwrap_or(0);
        self.list(Pane::Timeline, &screen.timeline, visible.len(), area, |at, width| {
            let event = &events[visible[at]];
            let row = TimelineRow::of(event);
            let step = row.step.map_or_else(String::new, |step| step.to_string());
            let mut spans = Vec::new();
            if width >= 50 {
                let time = timestamp::milliseconds(event.at);
                let time = time.get(11..19).unwrap_or_default().to_owned();
                spans.push(Span::styled(format!("{time} "), theme.faint()));
            }
            spans.push(Span::raw(format!("{step:>steps$} ")));
            spans.push(Span::styled(format!("{} ", row.mark.symbol()), theme.mark(row.mark)));
            if row.step.is_some() {
                let node_width = node_width.clamp(1, (width / 3).max(1));
                spans.push(Span::styled(padded(&row.node, node_width) + "  ", theme.strong()));
            }
            let style = if row.mark == Mark::Failed { theme.bad() } else { Style::new() };
            spans.push(Span::styled(row.detail, style));
            Line::from(spans)
        });
    }

    fn nodes(&mut self, area: Rect) {
        let (screen, theme) = (self.screen, self.theme);
        let nodes = screen.model.nodes();
        if nodes.is_empty() {
            return self.empty(area, "no node was visited yet");
        }
        let names = nodes.iter().map(|node| width_of(&brief(&node.name))).max().unwrap_or(0);
        self.list(Pane::Nodes, &screen.nodes, nodes.len(), area, |at, width| {
            let node = &nodes[at];
            let status = screen.model.status_of(node);
            let (symbol, style) = match status {
                NodeStatus::Unvisited => (" ", theme.faint()),
                NodeStatus::Done => ("✓", theme.good()),
                NodeStatus::Failed => ("✗", theme.bad()),
                NodeStatus::Cancelled => ("⊘", theme.waiting()),
                NodeStatus::Waiting => ("‖", theme.waiting()),
                NodeStatus::Next => ("▸", theme.busy()),
            };
            let name = padded(&brief(&node.name), names.clamp(1, (width / 2).max(1)));
            let counts = node.counts;
            let kind = if width >= 36 && !node.kind.is_empty() { format!("  {:<9}", node.kind) } else { String::new() };
            let mut rest = if counts.visits > 0 { format!("  ×{:<4}", counts.visits) } else { "       ".to_owned() };
            if counts.ms > 0 {
                rest.push_str(&format!(" {}", took(counts.ms)));
            }
            for (count, one, many) in [(counts.failures, "failure", "failures"), (counts.retries, "retry", "retries")] {
                if count > 0 {
                    rest.push_str(&format!(" {}", counted(count, one, many)));
                }
            }
            let spans = [
                Span::styled(format!("{symbol} "), style),
                Span::styled(name, if counts.visits > 0 { theme.strong() } else { style }),
                Span::styled(kind, theme.faint()),
                Span::raw(rest),
            ];
            Line::from_iter(spans)
        });
    }

    fn state(&mut self, area: Rect) {
        let (screen, theme) = (self.screen, self.theme);
        let rows = screen.selected().map_or_else(Vec::new, |at| screen.model.state_after(at));
        let inputs = screen.model.inputs();
        let count = rows.len() + usize::from(inputs.is_some());
        if count == 0 {
            return self.empty(area, "no key is set yet");
        }
        let keys = rows.iter().map(|row| width_of(&brief(row.key))).chain([6]).max().unwrap_or(0);
        self.list(Pane::State, &screen.state, count, area, |at, width| {
            let keys = keys.clamp(1, (width / 2).max(1));
            let Some(row) = rows.get(at) else {
                let value = inputs.map_or_else(String::new, compact);
                let spans = [Span::raw("  "), Span::styled(padded("inputs", keys), theme.faint())];
                return Line::from_iter(spans.into_iter().chain([Span::raw(format!("  {value}"))]));
            };
            let (symbol, style) = change(row, theme);
            let mut spans = vec![Span::styled(format!("{symbol} "), style)];
            spans.push(Span::styled(padded(&brief(row.key), keys), style.add_modifier(Modifier::BOLD)));
            let combined = if row.is_channel { "… " } else { "" };
            let value = row.value.map_or_else(|| "unset".to_owned(), compact);
            spans.push(Span::raw(format!("  {combined}{value}")));
            if let KeyChange::From(before) = row.change {
                spans.push(Span::styled(format!("  was {}", compact(before)), theme.faint()));
            }
            Line::from(spans)
        });
    }

    fn waits(&mut self, area: Rect) {
        let (screen, theme) = (self.screen, self.theme);
        let open: Vec<_> = screen.model.open_waits().collect();
        let nested = screen.model.nested();
        let count = open.len() + nested.len();
        if count == 0 {
            return self.empty(area, "none");
        }
        self.list(Pane::Waits, &screen.waits, count, area, |at, _| match open.get(at) {
            Some((step, node, wait, _)) => Line::from_iter([
                Span::styled("‖ ", theme.waiting()),
                Span::styled(format!("{step} {}  ", brief(node)), theme.strong()),
                Span::raw(waits(wait)),
            ]),
            // The newest first.
            None => {
                let (run, event) = &nested[nested.len() - 1 - (at - open.len())];
                let row = TimelineRow::of(&screen.model.events()[*event]);
                let step = row.step.map_or_else(String::new, |step| step.to_string());
                Line::from_iter([
                    Span::styled(format!("{} ", row.mark.symbol()), theme.mark(row.mark)),
                    Span::styled(format!("{step} {}  ", row.node), theme.strong()),
                    Span::raw(format!("run {}", brief(run.as_str()))),
                ])
            }
        });
    }

    fn page(&mut self, open: &OpenedPage, area: Rect) {
        let area = self.frame(&open.page.title, true, area);
        let (width, height) = (usize::from(area.width).max(1), usize::from(area.height));
        let rows: Vec<(&str, Style)> = open
            .page
            .lines
            .iter()
            .flat_map(|line| {
                let (text, style) = match line {
                    PageLine::Heading(text) => (text, self.theme.strong()),
                    PageLine::Text(text) => (text, Style::new()),
                    PageLine::Error(text) => (text, self.theme.bad()),
                };
                wrapped(text, width).into_iter().map(move |row| (row, style))
            })
            .collect();
        let top = open.top.get().min(rows.len().saturating_sub(height));
        open.top.set(top);
        open.height.set(height);
        for (place, (row, style)) in rows.iter().skip(top).take(height).enumerate() {
            let Ok(place) = u16::try_from(place) else { return };
            self.line(area, place, &Line::styled(*row, *style));
        }
    }
}

fn change(row: &KeyRow<'_>, theme: Theme) -> (&'static str, Style) {
    match (row.change, row.value) {
        (KeyChange::Kept, _) => (" ", Style::new()),
        (_, None) => ("-", theme.bad()),
        (KeyChange::New, _) => ("+", theme.good()),
        (KeyChange::From(_), _) => ("~", theme.waiting()),
    }
}
