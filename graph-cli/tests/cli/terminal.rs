//! `graph watch --tui` in a pseudo-terminal: what its user sees, and the terminal that is left.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::place::Place;
use crate::run::commands;
use crate::store::{WAITS, started};

/// How long something may take to be on the screen, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A terminal with `graph` in it.
struct PseudoTerminal {
    graph: Child,
    /// The side of the person.
    person: File,
    /// The side of the program.
    program: File,
    modes: LocalModes,
    screen: Arc<Mutex<vt100::Parser>>,
    reader: JoinHandle<()>,
}

impl PseudoTerminal {
    /// Watches a run in a terminal of a size, with a variable in the environment.
    fn start(place: &Place, run: &str, variable: (&str, &str), (width, height): (u16, u16)) -> Self {
        let person = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let noctty = i32::try_from(OpenptFlags::NOCTTY.bits()).unwrap();
        let path = std::ffi::OsStr::from_bytes(name.as_bytes());
        let program = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(path).unwrap();
        let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&program, size).unwrap();
        let modes = tcgetattr(&program).unwrap().local_modes;
        let side = || Stdio::from(program.try_clone().unwrap());
        let mut command = place.command(&["watch", run, "--store", "runs.db", "--tui"]);
        command.env(variable.0, variable.1);
        let graph = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let person = File::from(person);
        let screen = Arc::new(Mutex::new(parser(width, height)));
        let (mut output, shown) = (person.try_clone().unwrap(), Arc::clone(&screen));
        let reader = spawn(move || {
            let mut bytes = [0; 4096];
            // On Linux, an error says that nobody has the other side open any more.
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self { graph, person, program, modes, screen, reader }
    }

    fn watch(place: &Place, run: &str, size: (u16, u16)) -> Self {
        Self::start(place, run, ("TERM", "xterm-256color"), size)
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Waits until the screen is as it should be.
    fn wait_until(&self, what: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.text()) {
            assert!(begun.elapsed() < PATIENCE, "not seen: {what}\n{}", self.text());
            sleep(Duration::from_millis(10));
        }
    }

    fn wait_for(&self, text: &str) {
        self.wait_until(text, |screen| screen.contains(text));
    }

    fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    fn send(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.graph.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the program, and returns its exit code and the screen, which it must have given back.
    fn end(mut self) -> (i32, String) {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.graph.try_wait().unwrap() {
                break status.code().unwrap();
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end\n{}", self.text());
            sleep(Duration::from_millis(10));
        };
        let modes = tcgetattr(&self.program).unwrap().local_modes;
        assert_eq!(modes, self.modes, "keys are echoed and Ctrl-C is a signal, as before");
        drop((self.program, self.person));
        self.reader.join().unwrap();
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        assert!(!screen.alternate_screen(), "the text before is there again");
        assert!(!screen.hide_cursor(), "the cursor is there again");
        (code, screen.contents())
    }
}

fn parser(width: u16, height: u16) -> vt100::Parser {
    vt100::Parser::new(height.try_into().unwrap(), width.try_into().unwrap(), 0)
}

/// A place with a run `r` that has ended.
fn with_run(first: &str, second: &str, code: i32) -> Place {
    let place = Place::with_graph(&commands(first, second));
    let ran = place.graph(&["run", "graphs/g.yaml", "--store", "runs.db", "--run-id", "r", "--quiet"]);
    assert_eq!(ran.code, code, "{}", ran.err);
    place
}

#[test]
fn a_finished_run_is_browsed_and_the_terminal_is_given_back() {
    let place = with_run("printf \"\\033]0;owned\\007\\033[2J名\"", "echo b", 0);
    let mut terminal = PseudoTerminal::watch(&place, "r", (100, 24));
    terminal.wait_for("ended completed");
    {
        let parser = terminal.screen.lock().unwrap();
        assert!(parser.screen().alternate_screen() && parser.screen().hide_cursor());
    }
    let screen = terminal.text();
    let lines: Vec<&str> = screen.lines().collect();
    assert!(lines[0].starts_with(" r  ✓ completed  test/g"), "{screen}");
    assert!(lines[1].starts_with(" 3 visits  "), "{screen}");
    assert!(lines[2].starts_with("┏ Timeline 5/5, follows the end ━"), "{screen}");
    assert!(screen.contains("1 ✓ one   ") && screen.contains("3 ✓ done"), "{screen}");
    assert_eq!(lines[23].trim_end(), " ↑↓ PgUp PgDn Home End move  Tab pane  Enter open  / filter  f follow  q quit");
    // The second row of the timeline, and what its visit did.
    terminal.press("\u{1b}[H\u{1b}[B");
    terminal.wait_for("Timeline 2/5 ━");
    terminal.press("\r");
    terminal.wait_for("┏ step 1 one ━");
    terminal.wait_for("to        two");
    terminal.wait_for("␛]0;owned␇␛[2J名");
    terminal.press("\u{1b}");
    terminal.wait_for("Timeline 2/5 ━");
    terminal.press("/two\r");
    terminal.wait_for("Timeline 1/1 of 5 with “two”");
    terminal.press("\u{1b}");
    terminal.wait_for("Timeline 3/5 ━");
    terminal.press("\t");
    terminal.wait_for("┏ Nodes ━");
    terminal.press("q");
    assert_eq!(terminal.end(), (0, String::new()));
}

#[test]
fn a_running_run_is_followed_to_its_end() {
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let child = started(&place, "r");
    let mut terminal = PseudoTerminal::watch(&place, "r", (100, 24));
    terminal.wait_for(" r  ▸ running  test/g");
    terminal.wait_for(&format!("process {} on ", child.id()));
    terminal.wait_for("│▸ one ");
    place.write("go", "");
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    terminal.wait_for(" r  ✓ completed  test/g");
    terminal.wait_for("│✓ done ");
    // Ctrl-C is a key.
    terminal.press("\u{3}");
    assert_eq!(terminal.end(), (0, String::new()));
}

#[test]
fn the_exit_code_is_that_of_the_run() {
    let place = with_run("exit 3", "echo b", 1);
    let mut terminal = PseudoTerminal::watch(&place, "r", (80, 20));
    terminal.wait_for("✗ error: exit code 3");
    terminal.press("q");
    assert_eq!(terminal.end().0, 1);
    // A viewer of a run that has not ended may quit.
    let place = Place::with_graph(&commands(WAITS, "echo b"));
    let mut child = started(&place, "r");
    let mut terminal = PseudoTerminal::watch(&place, "r", (80, 20));
    terminal.wait_for("▸ running");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
    // If its process died, that is shown, and said again where the screen was.
    let mut terminal = PseudoTerminal::watch(&place, "r", (80, 20));
    terminal.wait_for("▸ running");
    child.kill().unwrap();
    child.wait().unwrap();
    place.write("go", "");
    terminal.wait_for("✗ no process is running the run `r`");
    terminal.press("q");
    let (code, text) = terminal.end();
    assert!(
        code == 3 && text.starts_with("error: no process is running the run `r` any more; resume it with"),
        "{text}"
    );
}

#[test]
fn signals_give_the_terminal_back() {
    let place = with_run("echo a", "echo b", 0);
    for (signal, code) in [(Signal::TERM, 143), (Signal::HUP, 129), (Signal::INT, 130), (Signal::QUIT, 131)] {
        let terminal = PseudoTerminal::watch(&place, "r", (80, 24));
        terminal.wait_for("ended completed");
        terminal.send(signal);
        assert_eq!(terminal.end(), (code, String::new()), "{signal:?}");
    }
}

#[test]
fn a_terminal_may_be_tiny_and_change_its_size() {
    let place = with_run("echo a", "echo b", 0);
    let mut terminal = PseudoTerminal::watch(&place, "r", (20, 5));
    terminal.wait_for("✓ ended completed");
    for (width, height) in [(1, 1), (3, 2), (120, 40)] {
        *terminal.screen.lock().unwrap() = parser(width, height);
        let size = Winsize { ws_row: height, ws_col: width, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&terminal.program, size).unwrap();
        // It is not the controlling terminal of the program, so the system does not send this.
        terminal.send(Signal::WINCH);
        // The new screen has something that was drawn after the change.
        terminal.wait_until("a frame", |screen| !screen.trim().is_empty());
    }
    terminal.wait_for("┌ Waits and nested runs ─");
    terminal.press("q");
    assert_eq!(terminal.end().0, 0);
}

#[test]
fn without_a_terminal_it_is_a_wrong_command_line() {
    let place = with_run("echo a", "echo b", 0);
    let ran = place.stored(&["watch", "r", "--tui"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "error: `--tui` needs a terminal, and stdin is not one; without it, a line is printed for each step\n"
    );
    for more in [&["--json"][..], &["--from", "r@1.0"]] {
        let ran = place.stored(&[&["watch", "r", "--tui"], more].concat());
        assert!(ran.code == 2 && ran.err.contains("cannot be used with"), "{}", ran.err);
    }
    // Before it takes the terminal, it prints errors as other verbs do.
    let terminal = PseudoTerminal::watch(&place, "s", (80, 24));
    assert_eq!(terminal.end(), (3, "error: there is no run `s`".to_owned()));
}

#[test]
fn no_color_leaves_out_colours() {
    let place = with_run("echo a", "echo b", 0);
    for (value, is_coloured) in [("1", false), ("", true)] {
        let mut terminal = PseudoTerminal::start(&place, "r", ("NO_COLOR", value), (80, 24));
        terminal.wait_for("ended completed");
        let parser = terminal.screen.lock().unwrap();
        let cells = (0..24).flat_map(|row| (0..80).map(move |column| (row, column)));
        let mut colours = cells.filter_map(|(row, column)| parser.screen().cell(row, column)).map(vt100::Cell::fgcolor);
        assert_eq!(colours.any(|colour| colour != vt100::Color::Default), is_coloured, "NO_COLOR={value}");
        drop(parser);
        terminal.press("q");
        assert_eq!(terminal.end().0, 0);
    }
}
