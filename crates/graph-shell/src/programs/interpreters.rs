//! Programs that execute text that they are given.

/// The role of a program's first argument that is no option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operand {
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
pub(crate) struct Interpreter {
    /// Options whose argument is code: long ones as they are, short ones as a letter.
    pub(crate) code: &'static [&'static str],
    /// Options that take an argument that is not code, by the same rule.
    pub(crate) takes: &'static [&'static str],
    /// Options that take two arguments.
    pub(crate) takes_two: &'static [&'static str],
    /// The letters of options that take no argument.
    pub(crate) flags: &'static str,
    /// The letters of options whose argument is the rest of the word, if there is any.
    pub(crate) attached: &'static str,
    /// Long options that take no argument.
    pub(crate) long: &'static [&'static str],
    /// Whether its options end at the first operand, though that is no file of code.
    pub(crate) is_posix: bool,
    pub(crate) operand: Operand,
    /// Whether it reads its code from stdin when no argument has it.
    pub(crate) reads_stdin: bool,
    pub(crate) is_shell: bool,
}

impl Interpreter {
    /// Whether an option is in the table: a letter, or a long one.
    pub(crate) fn knows(&self, option: &str) -> bool {
        let lists = [self.code, self.takes, self.takes_two, self.long];
        lists.iter().any(|list| list.contains(&option))
            || (option.chars().count() == 1 && (self.flags.contains(option) || self.attached.contains(option)))
    }
}

const NONE: Interpreter = Interpreter {
    code: &[],
    takes: &[],
    takes_two: &[],
    flags: "",
    attached: "",
    long: &["--help", "--version"],
    is_posix: false,
    operand: Operand::Data,
    reads_stdin: false,
    is_shell: false,
};
const SHELL: Interpreter = Interpreter {
    code: &["c"],
    takes: &["o", "O", "--rcfile", "--init-file"],
    // Without `-k`, which makes assignments of words behind a program's name.
    flags: "abefhilmnprstuvxBCDEHPT",
    long: &[
        "--login",
        "--noediting",
        "--noprofile",
        "--norc",
        "--posix",
        "--restricted",
        "--verbose",
        "--version",
        "--help",
    ],
    operand: Operand::Script,
    reads_stdin: true,
    is_shell: true,
    ..NONE
};
const fn scripts(code: &'static [&'static str]) -> Interpreter {
    Interpreter { code, flags: "bdhiqstuvVwW", operand: Operand::Script, reads_stdin: true, ..NONE }
}
const fn program(code: &'static [&'static str], takes: &'static [&'static str]) -> Interpreter {
    Interpreter { code, takes, operand: Operand::Code, ..NONE }
}
const fn options(code: &'static [&'static str], reads_stdin: bool) -> Interpreter {
    Interpreter { code, reads_stdin, ..NONE }
}

/// Returns how a program executes text, if it is one that does.
pub(crate) fn interpreter(name: &str) -> Option<Interpreter> {
    // Distributions use such names.
    let name = if name.starts_with("vim.") { "vim" } else { name };
    let name = if name.starts_with("perl5") { "perl" } else { name };
    let plain = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    let found = match plain {
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "rbash" | "yash" => Some(SHELL),
        _ => language(plain),
    };
    found.or_else(|| filter(plain)).or_else(|| database(plain)).or_else(|| other(plain))
}

/// Returns how a language's interpreter executes text.
fn language(name: &str) -> Option<Interpreter> {
    Some(match name {
        "fish" | "csh" | "tcsh" | "elvish" | "xonsh" | "nu" | "rc" | "es" => scripts(&["c"]),
        "python" | "pypy" | "ipython" | "micropython" => {
            Interpreter { takes: &["W", "X"], flags: "bBdEhiIOPqRsSuvVx", ..scripts(&["c", "m"]) }
        }
        "perl" => Interpreter {
            attached: "iF",
            flags: "0123456789aACcDfhlLnOpsStTuUvVwWX",
            ..scripts(&["e", "E", "M", "m", "I", "d", "x"])
        },
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
        _ => return None,
    })
}

/// Returns how a program that processes texts executes a script.
fn filter(name: &str) -> Option<Interpreter> {
    Some(match name {
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => Interpreter {
            flags: "bcCghMnNOPrsStV",
            long: &["--posix", "--traditional", "--re-interval", "--sandbox", "--csv", "--version", "--help"],
            is_posix: true,
            ..program(
                &["e", "f", "E", "--exec", "--source", "--file", "i", "--include", "l", "--load"],
                &["v", "F", "--assign", "--field-separator"],
            )
        },
        "sed" | "gsed" => Interpreter {
            flags: "nErsuz",
            attached: "i",
            long: &[
                "--quiet",
                "--silent",
                "--regexp-extended",
                "--separate",
                "--unbuffered",
                "--null-data",
                "--zero-terminated",
                "--posix",
                "--debug",
                "--sandbox",
                "--follow-symlinks",
                "--in-place",
                "--version",
                "--help",
            ],
            ..program(&["e", "f", "--expression", "--file"], &["l", "--line-length"])
        },
        "jq" | "yq" | "gojq" | "jaq" => Interpreter {
            takes_two: &["--arg", "--argjson", "--slurpfile", "--rawfile"],
            flags: "rRcCMaSsenhjPi",
            long: &[
                "--args",
                "--jsonargs",
                "--raw-output",
                "--raw-input",
                "--compact-output",
                "--color-output",
                "--tab",
                "--monochrome-output",
                "--ascii-output",
                "--sort-keys",
                "--slurp",
                "--exit-status",
                "--null-input",
                "--join-output",
                "--raw-output0",
                "--stream",
                "--seq",
                "--unbuffered",
                "--version",
                "--help",
            ],
            ..program(&["f", "--from-file", "L"], &["--indent"])
        },
        _ => return None,
    })
}

/// Returns how a client of a database executes text.
fn database(name: &str) -> Option<Interpreter> {
    Some(match name {
        "sqlite" | "duckdb" => Interpreter { operand: Operand::SecondIsCode, ..options(&["-cmd", "-init", "c"], true) },
        "psql" => Interpreter {
            takes: &[
                "v",
                "U",
                "d",
                "h",
                "p",
                "F",
                "R",
                "P",
                "T",
                "--set",
                "--dbname",
                "--host",
                "--port",
                "--username",
            ],
            flags: "aAbeEHlnqsStwWxXz10",
            ..options(&["c", "f", "--command", "--file"], true)
        },
        "mysql" | "mariadb" => Interpreter {
            attached: "p",
            takes: &["u", "h", "P", "D", "S", "--user", "--host", "--port", "--password", "--database"],
            flags: "ABCNnqrstvw",
            long: &["--batch", "--raw", "--skip-column-names", "--silent"],
            ..options(&["e", "--execute", "--init-command"], true)
        },
        "redis-cli" | "mongo" | "mongosh" => options(&["--eval"], true),
        _ => return None,
    })
}

/// Returns how an editor, a build tool or a starter of shells executes text.
fn other(name: &str) -> Option<Interpreter> {
    Some(match name {
        "dc" => options(&["e", "f", "--expression", "--file"], true),
        "ed" | "red" | "ex" | "vi" | "vim" | "nvim" | "view" | "vimdiff" | "rvim" => {
            Interpreter { flags: "esnNRmMvVyZlLAbCdDEFgGHqQ", ..options(&["c", "S", "--cmd"], true) }
        }
        "make" | "gmake" => Interpreter {
            takes: &["C", "I", "j", "l", "o", "W", "--directory", "--jobs"],
            flags: "BbdeiknpqrRsStvw",
            ..options(&["f", "--file", "--makefile", "--eval", "E"], false)
        },
        "emacs" => options(&["--eval", "-eval", "l", "--load", "-l", "--script"], false),
        "gdb" => options(&["-ex", "-eval-command", "x", "--command", "--ex"], true),
        "gnuplot" => scripts(&["e"]),
        "at" | "batch" | "crontab" | "parallel" | "sem" => options(&["f"], true),
        "su" | "runuser" | "script" | "sg" => Interpreter {
            takes: &["s", "g", "G", "u", "w", "E", "I", "O", "B", "T", "m", "o", "--shell", "--group", "--user"],
            flags: "aefflmpqPht",
            long: &["--login", "--preserve-environment", "--quiet", "--return", "--append", "--flush", "--pty"],
            ..options(&["c", "--command", "--session-command"], true)
        },
        _ => return None,
    })
}
