//! The viewer in a terminal: takes over the screen, reads keys and events of the run, and gives the screen back, also on an error, on a
//! signal, and on a panic.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use graph_model::name::ItemId;
use graph_runtime::dynamic::{Library, Toolbox};
use graph_runtime::events::{FollowedEvents, RunEvent};
use graph_runtime::machine::Machine;
use graph_runtime::record::Status;
use graph_runtime::store::RunSummary;
use graph_runtime::{RunId, SqliteStore, Store};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::interval;

use super::model::{GraphNodes, RunModel};
use super::screen::{FollowState, KeyReaction, Screen};
use super::view::{Theme, draw};
use super::{WatchArguments, explained};
use crate::command::run::signals::{Signal, Signals};
use crate::command::stored::{self, Access};
use crate::command::stored_run::verifying_key;
use crate::outcome::Error;
use crate::output::{self, UNDONE};

/// The exit code of a wrong command line.
const USAGE: u8 = 2;
/// How often the store is asked who runs the run.
const PACE: Duration = Duration::from_secs(1);
/// The most events that are taken over between two frames.
const BATCH: usize = 4096;

/// How the viewer was left.
enum Left {
    /// By a key, with the status of a run that has ended.
    ByKey(Option<Status>),
    BySignal(Signal),
}

/// A new fact about the run.
enum News {
    Event(Box<RunEvent>),
    Summary(Box<RunSummary>),
    Over,
    Failed(Error),
}

/// Shows a run until the user has seen enough.
pub(super) fn run(arguments: &WatchArguments) -> ExitCode {
    for (name, is_terminal) in [("stdin", io::stdin().is_terminal()), ("stdout", io::stdout().is_terminal())] {
        if !is_terminal {
            err!("error: `--tui` needs a terminal, and {name} is not one; without it, a line is printed for each step");
            return USAGE.into();
        }
    }
    match stored::tokio().and_then(|tokio| tokio.block_on(watch(arguments))) {
        Ok(Left::ByKey(None | Some(Status::Completed | Status::CompletedWithErrors))) => output::finish(0),
        Ok(Left::ByKey(Some(_))) => output::finish(1),
        Ok(Left::BySignal(signal)) => signal.exit_code().into(),
        Err(error) => {
            err!("error: {error}");
            UNDONE.into()
        }
    }
}

async fn watch(arguments: &WatchArguments) -> Result<Left, Error> {
    let WatchArguments { run, store: path, public_key, .. } = arguments;
    let key = verifying_key(public_key.as_deref())?;
    let store = Arc::new(stored::open(path, Access::Read).await?);
    let summary = store.find(run).await?;
    let mut model = RunModel::new(run.clone());
    if let Some(graph) = graph_of(&summary) {
        model = model.with_graph(graph);
    }
    model.hold(&summary);
    let events = FollowedEvents::of_store(Arc::clone(&store) as _, key, run.clone(), None)?;
    let mut signals = Signals::new()?;
    let news = follow(events, store, run.clone(), arguments.clone())?;
    // From here on, the terminal is ours until this is dropped.
    let mut terminal = OwnTerminal::take()?;
    let (screen, left) = show(&mut terminal.0, Screen::new(model), news, &mut signals).await?;
    drop(terminal);
    match (screen.following, left) {
        (FollowState::Failed(error), Left::ByKey(_)) => Err(Error::new(error)),
        (_, left) => Ok(left),
    }
}

/// Draws the run, and reacts to keys, until one of them or a signal ends that.
async fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    mut news: Receiver<News>,
    signals: &mut Signals,
) -> Result<(Screen, Left), Error> {
    let theme = Theme { is_coloured: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) };
    let mut keys = keys()?;
    let (mut batch, mut is_open) = (Vec::new(), true);
    loop {
        terminal.draw(|frame| draw(frame, &screen, theme))?;
        tokio::select! {
            biased;
            signal = signals.next() => return Ok((screen, Left::BySignal(signal))),
            event = keys.recv() => match event {
                Some(Ok(Event::Key(key))) => {
                    if screen.press(key) == KeyReaction::Quit {
                        let status = screen.model.end().map(|end| end.status);
                        return Ok((screen, Left::ByKey(status)));
                    }
                }
                // It is drawn again, in its new size.
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(Error::new(format!("the terminal cannot be read: {error}"))),
                None => return Err(Error::new("the terminal cannot be read any more")),
            },
            count = news.recv_many(&mut batch, BATCH), if is_open => {
                batch.drain(..).for_each(|news| apply(&mut screen, news));
                is_open = count > 0;
                if !is_open && matches!(screen.following, FollowState::Reading | FollowState::Live) {
                    return Err(Error::new("the run can be followed no longer: the thread that reads its events ended"));
                }
            }
        }
    }
}

fn apply(screen: &mut Screen, news: News) {
    match news {
        News::Event(event) => {
            if screen.following == FollowState::Reading {
                screen.following = FollowState::Live;
            }
            screen.add(*event);
        }
        News::Summary(summary) => screen.model.hold(&summary),
        News::Over => screen.following = FollowState::Over,
        News::Failed(error) => screen.following = FollowState::Failed(error.to_string()),
    }
}

/// Follows the run in a thread of its own: a long journal takes a while to be read and verified, and the keys are answered meanwhile.
fn follow(
    mut events: FollowedEvents,
    store: Arc<SqliteStore>,
    run: RunId,
    arguments: WatchArguments,
) -> Result<Receiver<News>, Error> {
    let (sender, receiver) = channel(BATCH);
    let tokio = stored::tokio()?;
    std::thread::Builder::new().name("events".to_owned()).spawn(move || {
        tokio.block_on(async move {
            let (file, mut pace) = (stored::StoreFile::at(&arguments.store), interval(PACE));
            loop {
                let news = tokio::select! {
                    biased;
                    event = events.next() => match event {
                        Some(Ok(event)) => News::Event(Box::new(event)),
                        Some(Err(error)) => News::Failed(explained(error, &arguments)),
                        None => News::Over,
                    },
                    _ = pace.tick() => match file.check().and(store.find(&run).await.map_err(Error::from)) {
                        Ok(summary) => News::Summary(Box::new(summary)),
                        Err(error) => News::Failed(error),
                    },
                };
                let is_last = matches!(news, News::Over | News::Failed(_));
                if sender.send(news).await.is_err() || is_last {
                    return;
                }
            }
        });
    })?;
    Ok(receiver)
}

/// Reads the terminal in a thread of its own, which ends with the program.
fn keys() -> Result<Receiver<io::Result<Event>>, Error> {
    let (sender, receiver) = channel(64);
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || read_keys(&sender))?;
    Ok(receiver)
}

fn read_keys(sender: &Sender<io::Result<Event>>) {
    loop {
        let event = event::read();
        let is_last = event.is_err();
        if sender.blocking_send(event).is_err() || is_last {
            return;
        }
    }
}

/// Returns the nodes of the run's graph, if the tree `graphs` has the graph that the run began under.
fn graph_of(summary: &RunSummary) -> Option<GraphNodes> {
    let library = Library::open(&std::env::current_dir().ok()?.join("graphs"), Toolbox::new());
    let file = library.find(&ItemId::new(&*summary.graph).ok()?)?;
    let topology = library.graph(&file).ok()?.graph().named_topology();
    let is_same = match (summary.meaning, topology.meaning) {
        (Some(own), Some(other)) => own == other,
        _ => summary.digest == Some(topology.digest),
    };
    is_same.then(|| GraphNodes::of(topology))
}

/// The terminal in raw mode, with the alternate screen. A panic gives it back before its message is printed.
struct OwnTerminal(DefaultTerminal);

impl OwnTerminal {
    fn take() -> Result<Self, Error> {
        ratatui::try_init().map(Self).map_err(|error| {
            // A part may have succeeded. If it cannot be undone either, the first error says why.
            drop(ratatui::try_restore());
            Error::new(format!("the terminal cannot be used: {error}"))
        })
    }
}

impl Drop for OwnTerminal {
    fn drop(&mut self) {
        // A terminal that is gone does not need it.
        drop(self.0.show_cursor());
        drop(ratatui::try_restore());
    }
}
