//! The state of the viewer of a run, and the effects of its keys. Nothing here reads a terminal or draws.

use std::cell::Cell;

use graph_runtime::events::RunEvent;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::model::RunModel;
use super::row::{EventPage, TimelineRow};

/// A part of the screen that the keys are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pane {
    Timeline,
    Nodes,
    State,
    Waits,
}

impl Pane {
    const ALL: [Self; 4] = [Self::Timeline, Self::Nodes, Self::State, Self::Waits];

    fn after(self, places: usize) -> Self {
        let at = Self::ALL.iter().position(|pane| *pane == self).unwrap_or_default();
        Self::ALL[(at + places) % Self::ALL.len()]
    }
}

/// A list with a selected row, of which a part is on the screen.
#[derive(Debug, Default)]
pub(super) struct List {
    selected: usize,
    top: Cell<usize>,
    /// How many rows were drawn last, which is the length of a page.
    height: Cell<usize>,
}

impl List {
    /// Returns the selected row of `count` rows.
    pub(super) fn selected(&self, count: usize) -> Option<usize> {
        count.checked_sub(1).map(|last| self.selected.min(last))
    }

    /// Returns the rows that are on the screen, which has `height` of them: the selected one is among them.
    pub(super) fn shown(&self, count: usize, height: usize) -> std::ops::Range<usize> {
        self.height.set(height);
        let selected = self.selected(count).unwrap_or_default();
        let lowest = (selected + 1).saturating_sub(height);
        let top = self.top.get().clamp(lowest, selected.max(lowest)).min(count.saturating_sub(height));
        self.top.set(top);
        top..count.min(top + height)
    }

    fn move_by(&mut self, code: KeyCode, count: usize) -> bool {
        let page = self.height.get().saturating_sub(1).max(1);
        let (at, last) = (self.selected(count).unwrap_or_default(), count.saturating_sub(1));
        self.selected = match code {
            KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
            KeyCode::PageUp => at.saturating_sub(page),
            KeyCode::PageDown => (at + page).min(last),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return false,
        };
        true
    }
}

/// A page over the panes.
#[derive(Debug)]
pub(super) struct OpenedPage {
    pub(super) page: EventPage,
    /// The first row on the screen.
    pub(super) top: Cell<usize>,
    pub(super) height: Cell<usize>,
}

/// How far the run is followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FollowState {
    /// The journal is read for the first time.
    Reading,
    /// Each event appears as it is committed.
    Live,
    /// The run has ended.
    Over,
    /// It can be followed no longer.
    Failed(String),
}

/// Whether the viewer continues after a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeyReaction {
    Continue,
    Quit,
}

/// The state of the viewer.
#[derive(Debug)]
pub(super) struct Screen {
    pub(super) model: RunModel,
    pub(super) following: FollowState,
    pub(super) focus: Pane,
    /// Whether the last event is selected as events come.
    pub(super) follows_end: bool,
    pub(super) filter: String,
    /// Whether the filter is being written.
    pub(super) is_filtering: bool,
    /// The events that the filter lets through.
    visible: Vec<usize>,
    pub(super) timeline: List,
    pub(super) nodes: List,
    pub(super) state: List,
    pub(super) waits: List,
    pub(super) page: Option<OpenedPage>,
}

impl Screen {
    pub(super) fn new(model: RunModel) -> Self {
        let visible = (0..model.events().len()).collect();
        let mut screen = Self {
            model,
            following: FollowState::Reading,
            focus: Pane::Timeline,
            follows_end: true,
            filter: String::new(),
            is_filtering: false,
            visible,
            timeline: List::default(),
            nodes: List::default(),
            state: List::default(),
            waits: List::default(),
            page: None,
        };
        screen.follow();
        screen
    }

    /// Shows another event.
    pub(super) fn add(&mut self, event: RunEvent) {
        let passes = self.passes(&event);
        self.model.add(event);
        if passes {
            self.visible.push(self.model.events().len() - 1);
            self.follow();
        }
    }

    /// Returns the events in the timeline, by their places among all.
    pub(super) fn visible(&self) -> &[usize] {
        &self.visible
    }

    /// Returns the selected event.
    pub(super) fn selected(&self) -> Option<usize> {
        self.visible.get(self.timeline.selected(self.visible.len())?).copied()
    }

    fn passes(&self, event: &RunEvent) -> bool {
        self.filter.is_empty() || TimelineRow::of(event).has(&self.filter.to_lowercase())
    }

    fn follow(&mut self) {
        if self.follows_end {
            self.timeline.selected = self.visible.len().saturating_sub(1);
        }
    }

    /// Filters the timeline. The selected event remains selected if it passes, or the one before it.
    fn filter_by(&mut self, filter: String) {
        let selected = self.selected();
        self.filter = filter;
        let events = self.model.events().iter().enumerate();
        self.visible = events.filter(|(_, event)| self.passes(event)).map(|(at, _)| at).collect();
        let before = selected.map_or(0, |selected| self.visible.partition_point(|at| *at <= selected));
        self.timeline.selected = before.saturating_sub(1);
        self.follow();
    }

    /// Reacts to a key.
    pub(super) fn press(&mut self, key: KeyEvent) -> KeyReaction {
        if key.kind == KeyEventKind::Release {
            return KeyReaction::Continue;
        }
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return KeyReaction::Quit,
            _ if self.is_filtering => self.edit_filter(key.code),
            KeyCode::Char(_) if with_control => {}
            code if self.page.is_some() => self.turn_page(code),
            KeyCode::Char('q') => return KeyReaction::Quit,
            KeyCode::Esc if self.filter.is_empty() => return KeyReaction::Quit,
            KeyCode::Esc => self.filter_by(String::new()),
            KeyCode::Tab => self.focus = self.focus.after(1),
            KeyCode::BackTab => self.focus = self.focus.after(Pane::ALL.len() - 1),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Char('f') => {
                self.follows_end = !self.follows_end;
                self.follow();
            }
            KeyCode::Enter => self.open(),
            code => self.walk(code),
        }
        KeyReaction::Continue
    }

    fn edit_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => {
                self.is_filtering = false;
                self.filter_by(String::new());
            }
            KeyCode::Backspace => {
                let mut filter = self.filter.clone();
                filter.pop();
                self.filter_by(filter);
            }
            KeyCode::Char(character) => self.filter_by(format!("{}{character}", self.filter)),
            _ => {}
        }
    }

    fn turn_page(&mut self, code: KeyCode) {
        let Some(open) = &self.page else { return };
        let (top, page) = (open.top.get(), open.height.get().saturating_sub(1).max(1));
        match code {
            KeyCode::Up | KeyCode::Char('k') => open.top.set(top.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => open.top.set(top.saturating_add(1)),
            KeyCode::PageUp => open.top.set(top.saturating_sub(page)),
            KeyCode::PageDown | KeyCode::Char(' ') => open.top.set(top.saturating_add(page)),
            KeyCode::Home => open.top.set(0),
            // The view bounds it by the rows that there are.
            KeyCode::End => open.top.set(usize::MAX),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => self.page = None,
            _ => {}
        }
    }

    fn walk(&mut self, code: KeyCode) {
        match self.focus {
            Pane::Timeline => {
                if self.timeline.move_by(code, self.visible.len()) {
                    self.follows_end = code == KeyCode::End;
                }
            }
            Pane::Nodes => {
                self.nodes.move_by(code, self.model.nodes().len());
            }
            Pane::State => {
                self.state.move_by(code, self.state_rows());
            }
            Pane::Waits => {
                self.waits.move_by(code, self.wait_events().len());
            }
        }
    }

    fn state_rows(&self) -> usize {
        let inputs = usize::from(self.model.inputs().is_some());
        inputs + self.selected().map_or(0, |at| self.model.state_after(at).len())
    }

    /// Returns the events that the rows of the waits and nested runs are about.
    pub(super) fn wait_events(&self) -> Vec<usize> {
        let waits = self.model.open_waits().map(|(_, _, _, at)| at);
        waits.chain(self.model.nested().iter().rev().map(|(_, at)| *at)).collect()
    }

    /// Opens the page about what is selected; for a node, its visits in the timeline.
    fn open(&mut self) {
        let page = match self.focus {
            Pane::Timeline => self.selected().and_then(|at| EventPage::of_event(&self.model, at)),
            Pane::Nodes => {
                let row = self.nodes.selected(self.model.nodes().len());
                if let Some(name) = row.map(|row| self.model.nodes()[row].name.clone()) {
                    self.filter_by(super::text::brief(&name));
                    self.focus = Pane::Timeline;
                }
                None
            }
            Pane::State => self.open_key(),
            Pane::Waits => {
                let events = self.wait_events();
                let at = self.waits.selected(events.len()).map(|row| events[row]);
                at.and_then(|at| EventPage::of_event(&self.model, at))
            }
        };
        self.page = page.map(|page| OpenedPage { page, top: Cell::new(0), height: Cell::new(1) });
    }

    fn open_key(&self) -> Option<EventPage> {
        let rows = self.selected().map_or_else(Vec::new, |at| self.model.state_after(at));
        let row = self.state.selected(self.state_rows())?;
        match rows.get(row) {
            Some(row) => Some(EventPage::of_key(row)),
            None => self.model.inputs().map(EventPage::of_inputs),
        }
    }
}
