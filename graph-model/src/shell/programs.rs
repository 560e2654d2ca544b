//! What common programs do with their arguments and stdin: which of them they execute.

/// What a program does with the first argument that is no option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// It is a file of code.
    Script,
    /// It is code.
    Code,
    /// The one behind it is code.
    SecondIsCode,
    Data,
}

/// A program that executes text that it is given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interpreter {
    /// Options whose argument is code: long ones as they are, short ones as a letter.
    pub(super) code: &'static [&'static str],
    /// Options that take an argument that is not code, by the same rule.
    pub(super) takes: &'static [&'static str],
    pub(super) operand: Operand,
    /// Whether it reads its code from stdin when no argument has it.
    pub(super) reads_stdin: bool,
    pub(super) is_shell: bool,
}

const SHELL: Interpreter = Interpreter {
    code: &["c"],
    takes: &["o", "O", "--rcfile", "--init-file"],
    operand: Operand::Script,
    reads_stdin: true,
    is_shell: true,
};
const fn scripts(code: &'static [&'static str]) -> Interpreter {
    Interpreter { code, takes: &[], operand: Operand::Script, reads_stdin: true, is_shell: false }
}
const fn program(code: &'static [&'static str], takes: &'static [&'static str]) -> Interpreter {
    Interpreter { code, takes, operand: Operand::Code, reads_stdin: false, is_shell: false }
}
const fn options(code: &'static [&'static str], reads_stdin: bool) -> Interpreter {
    Interpreter { code, takes: &[], operand: Operand::Data, reads_stdin, is_shell: false }
}

/// Returns how a program executes text, if it is one that does.
pub(super) fn interpreter(name: &str) -> Option<Interpreter> {
    let plain = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    Some(match plain {
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "rbash" | "yash" => SHELL,
        "fish" | "csh" | "tcsh" | "elvish" | "xonsh" | "nu" | "rc" | "es" => scripts(&["c"]),
        "python" | "pypy" | "ipython" | "micropython" => Interpreter { takes: &["W", "X"], ..scripts(&["c", "m"]) },
        "perl" => Interpreter { takes: &["0"], ..scripts(&["e", "E", "M", "m", "I"]) },
        "ruby" | "irb" | "jruby" => Interpreter { takes: &["C"], ..scripts(&["e", "r", "I"]) },
        "node" | "nodejs" | "bun" | "deno" | "ts-node" | "tsx" => {
            scripts(&["e", "p", "r", "--eval", "--print", "--require", "--import", "eval"])
        }
        "php" => scripts(&["r", "B", "R", "E", "d"]),
        "lua" | "luajit" | "tclsh" | "wish" | "Rscript" | "R" | "julia" | "osascript" | "guile" | "racket"
        | "scheme" | "sbcl" | "clisp" | "elixir" | "iex" | "erl" | "escript" | "groovy" | "scala" | "kotlin"
        | "swift" | "ghci" | "runghc" | "ocaml" | "octave" | "swipl" | "raku" | "janet" | "bb" | "clojure"
        | "nickel" | "nix" | "nix-instantiate" => {
            scripts(&["e", "E", "c", "f", "g", "--eval", "--expr", "-eval", "--load"])
        }
        "pwsh" | "powershell" => scripts(&["c", "--command", "-Command", "-c", "-EncodedCommand", "-File"]),
        "expect" => scripts(&["c", "f"]),
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => program(
            &["e", "f", "--source", "--file", "i", "--include", "l", "--load"],
            &["v", "F", "--assign", "--field-separator"],
        ),
        "sed" | "gsed" => program(&["e", "f", "--expression", "--file"], &["l", "--line-length"]),
        "jq" | "yq" | "gojq" | "jaq" => program(&["f", "--from-file", "L"], &["--indent", "--tab"]),
        "sqlite" | "duckdb" => Interpreter { operand: Operand::SecondIsCode, ..options(&["-cmd", "-init", "c"], true) },
        "psql" => Interpreter {
            takes: &["v", "U", "d", "h", "p", "o", "F", "R"],
            ..options(&["c", "f", "--command", "--file"], true)
        },
        "mysql" | "mariadb" => options(&["e", "--execute", "--init-command"], true),
        "redis-cli" | "mongo" | "mongosh" => options(&["--eval"], true),
        "dc" => options(&["e", "f", "--expression", "--file"], true),
        "ed" | "red" | "ex" | "vi" | "vim" | "nvim" | "view" => options(&["c", "S", "--cmd", "s"], true),
        "emacs" => options(&["--eval", "-eval", "l", "--load", "-l", "--script"], false),
        "gdb" => options(&["-ex", "-eval-command", "x", "--command", "--ex"], true),
        "gnuplot" => scripts(&["e"]),
        "at" | "batch" | "crontab" | "parallel" | "sem" => options(&["f"], true),
        "su" | "runuser" | "script" | "sg" => options(&["c", "--command"], true),
        _ => return None,
    })
}

/// Programs that start another one, which stands among their arguments behind options and assignments.
pub(super) const PREFIXES: &[&str] = &[
    "env",
    "nice",
    "nohup",
    "timeout",
    "gtimeout",
    "sudo",
    "doas",
    "setsid",
    "stdbuf",
    "ionice",
    "chrt",
    "strace",
    "ltrace",
    "command",
    "builtin",
    "exec",
    "unbuffer",
    "catchsegv",
    "unshare",
    "busybox",
    "toybox",
    "torsocks",
    "caffeinate",
    "systemd-run",
    "systemd-inhibit",
    "firejail",
    "xvfb-run",
    "faketime",
    "eatmydata",
    "fakeroot",
    "pkexec",
    "setpriv",
];

/// Programs that start another one somewhere among their arguments.
pub(super) const CARRIERS: &[&str] = &[
    "flock",
    "chroot",
    "taskset",
    "nsenter",
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "oc",
    "lxc",
    "find",
    "xargs",
    "npx",
    "pnpm",
    "yarn",
    "npm",
    "uv",
    "poetry",
    "pipenv",
    "conda",
    "nix",
    "direnv",
    "tmux",
    "screen",
    "vagrant",
    "heroku",
    "fly",
    "runuser",
    "su",
    "bwrap",
    "setarch",
    "linux32",
    "linux64",
    "proxychains",
    "proxychains4",
    "dbus-run-session",
    "entr",
    "start-stop-daemon",
    "daemonize",
    "machinectl",
    "distrobox",
    "toolbox",
    "time",
    "gtime",
    "hyperfine",
    "perf",
    "valgrind",
    "rr",
];

/// Programs of which every argument may become a part of a command.
pub(super) const COMPOSERS: &[&str] =
    &["parallel", "sem", "watch", "socat", "expect", "rsh", "remsh", "mosh", "at", "batch"];

/// Programs with options that start a program or take one of the command's caller: a value needs `--` before it.
pub(super) fn has_dangerous_options<'t>(name: &str, mut arguments: impl Iterator<Item = &'t str>) -> bool {
    match name {
        "tar" | "gtar" | "bsdtar" | "rsync" | "scp" | "sftp" | "make" | "gmake" | "man" | "split" | "cpio"
        | "tcpdump" | "hg" => true,
        "git" => arguments.any(|argument| GIT.contains(&argument)),
        _ => false,
    }
}

/// The commands of git with options that name a program.
const GIT: [&str; 12] = [
    "clone",
    "fetch",
    "pull",
    "push",
    "ls-remote",
    "grep",
    "rebase",
    "bisect",
    "submodule",
    "archive",
    "difftool",
    "send-email",
];

/// Builtins that execute their arguments, or evaluate them, whatever they are.
pub(super) const EVALUATORS: &[&str] =
    &["eval", "alias", "enable", "bind", "complete", "compgen", "compopt", "hash", "fc", "jobs"];
