//! A directory in which `graph` runs, with a home directory of its own.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A directory in which `graph` runs, and which is its home directory.
pub(crate) struct Place {
    directory: tempfile::TempDir,
}

/// The exit code and the output of a command.
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn root(&self) -> &Path {
        self.directory.path()
    }

    /// The command, with an empty stdin and with no environment variables except `HOME` and `PATH`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(env!("CARGO_BIN_EXE_graph"), arguments)
    }

    /// Another program, in the same way.
    pub(crate) fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.root()).env_clear().env("HOME", self.root()).stdin(Stdio::null());
        // Where programs are, and where a measurement of coverage collects what ran.
        for name in ["PATH", "LLVM_PROFILE_FILE"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command
    }

    pub(crate) fn graph(&self, arguments: &[&str]) -> Ran {
        self.ran(self.command(arguments).output().unwrap())
    }

    /// Runs `graph` with a text on stdin.
    pub(crate) fn piped(&self, arguments: &[&str], stdin: &str) -> Ran {
        let mut command = self.command(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The program may end before it reads all of it.
        drop(child.stdin.take().unwrap().write_all(stdin.as_bytes()));
        self.ran(child.wait_with_output().unwrap())
    }

    pub(crate) fn ran(&self, output: Output) -> Ran {
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            text.replace(&self.directory.path().display().to_string(), "HOME")
        };
        Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// A place with a key that the tree `graphs` trusts.
    pub(crate) fn with_key() -> Self {
        let place = Self::new();
        assert_eq!(place.graph(&["keys", "generate"]).code, 0);
        assert_eq!(place.graph(&["keys", "trust", "--owner", "me"]).code, 0);
        place
    }
}
