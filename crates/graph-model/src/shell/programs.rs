//! What common programs do with their arguments and stdin: which of them they execute.

use super::parse::Word;

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
    /// Options that take two.
    pub(super) takes_two: &'static [&'static str],
    /// The letters of options that take none.
    pub(super) flags: &'static str,
    /// The letters of options of which the rest of the word is the argument, if there is one.
    pub(super) attached: &'static str,
    /// Long options that take none.
    pub(super) long: &'static [&'static str],
    /// Whether its options end at the first operand, though that is no file of code.
    pub(super) is_posix: bool,
    pub(super) operand: Operand,
    /// Whether it reads its code from stdin when no argument has it.
    pub(super) reads_stdin: bool,
    pub(super) is_shell: bool,
}

impl Interpreter {
    /// Whether an option is in the table: a letter, or a long one.
    pub(super) fn knows(&self, option: &str) -> bool {
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
    // Without `-k`, by which words behind a program's name are assignments.
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
pub(super) fn interpreter(name: &str) -> Option<Interpreter> {
    // Distributions call them so.
    let name = if name.starts_with("vim.") { "vim" } else { name };
    let name = if name.starts_with("perl5") { "perl" } else { name };
    let plain = name.trim_end_matches(|last: char| last.is_ascii_digit() || last == '.');
    Some(match plain {
        "sh" | "bash" | "dash" | "ash" | "zsh" | "ksh" | "mksh" | "rbash" | "yash" => SHELL,
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

/// Whether the code that a program is given is that of a shell.
pub(super) fn takes_commands(name: &str) -> bool {
    matches!(name, "su" | "runuser" | "script" | "sg" | "at" | "batch" | "parallel" | "sem")
}

/// A program that starts another one, which stands among its arguments behind options, assignments and operands of its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Starter {
    /// The letters of options that take an argument.
    takes: &'static str,
    /// The letters of options that take none.
    flags: &'static str,
    /// The letters of options of which the rest of the word is the argument, if there is one.
    attached: &'static str,
    /// Long options, those that take an argument with a `=` behind the name.
    long: &'static [&'static str],
    /// How many operands stand before the program.
    pub(super) operands: usize,
    /// Whether the operand before the program may be left out.
    pub(super) optional_operand: bool,
    /// Whether assignments stand before the program.
    pub(super) assigns: bool,
    /// Whether it starts a shell if no program is named.
    pub(super) is_shell: bool,
}

/// What an option is followed by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionOf {
    /// Nothing that belongs to it.
    Flag,
    /// Its argument.
    Takes,
    Unknown,
}

impl Starter {
    /// Tells what an option is, or the letters of several. `is_whole` says whether all of the word is known.
    pub(super) fn option(&self, word: &str, is_whole: bool) -> OptionOf {
        if word.starts_with("--") {
            let (name, has_value) = word.split_once('=').map_or((word, false), |(name, _)| (name, true));
            let takes = self.long.iter().any(|known| known.strip_suffix('=') == Some(name));
            return match (takes, has_value) {
                (true, true) => OptionOf::Flag,
                (true, false) if is_whole => OptionOf::Takes,
                (false, false) if is_whole && self.long.contains(&name) => OptionOf::Flag,
                _ => OptionOf::Unknown,
            };
        }
        let letters = &word[1..];
        for (at, letter) in letters.char_indices() {
            if self.takes.contains(letter) {
                let is_last = at + letter.len_utf8() == letters.len();
                return if is_last && is_whole { OptionOf::Takes } else { OptionOf::Flag };
            }
            if self.attached.contains(letter) {
                return OptionOf::Flag;
            }
            if !self.flags.contains(letter) {
                return OptionOf::Unknown;
            }
        }
        if is_whole { OptionOf::Flag } else { OptionOf::Unknown }
    }
}

/// Returns how a program starts another one, if it does nothing but that.
pub(super) fn starter(name: &str) -> Option<Starter> {
    const PLAIN: Starter = Starter {
        takes: "",
        flags: "",
        attached: "",
        long: &[],
        operands: 0,
        optional_operand: false,
        assigns: false,
        is_shell: false,
    };
    const DIGITS: &str = "0123456789";
    let plain = |flags, takes, long| Starter { flags, takes, long, ..PLAIN };
    if name.starts_with("ld-") || name.starts_with("ld.so") {
        let long =
            &["--library-path=", "--preload=", "--argv0=", "--inhibit-cache", "--inhibit-rpath=", "--list", "--verify"];
        return Some(plain("", "", long));
    }
    Some(match name {
        "env" => Starter {
            assigns: true,
            ..plain(
                "i0v",
                "uCS",
                &["--ignore-environment", "--null", "--debug", "--unset=", "--chdir=", "--split-string="],
            )
        },
        "nice" => plain(DIGITS, "n", &["--adjustment="]),
        "nohup" | "builtin" | "ssh-agent" | "catchsegv" | "eatmydata" | "chronic" | "unbuffer" | "setlock" => {
            plain("p", "", &[])
        }
        "command" => plain("pvV", "", &[]),
        "exec" => plain("cl", "a", &[]),
        "timeout" | "gtimeout" => Starter {
            operands: 1,
            ..plain("v", "ks", &["--foreground", "--preserve-status", "--verbose", "--kill-after=", "--signal="])
        },
        "sudo" | "doas" | "pkexec" | "run0" => Starter {
            assigns: true,
            is_shell: true,
            ..plain(
                "AbEHKklLnPSVBNis",
                "CDghpRrTtUu",
                &["--user=", "--group=", "--preserve-env", "--non-interactive", "--set-home"],
            )
        },
        "setsid" => plain("cfw", "", &["--ctty", "--fork", "--wait"]),
        "stdbuf" => plain("", "ioe", &["--input=", "--output=", "--error="]),
        "ionice" => plain("t", "cnpPu", &["--class=", "--classdata=", "--ignore"]),
        "chrt" => Starter { operands: 1, ..plain("abdfimorvR", "TPDp", &[]) },
        "strace" | "ltrace" => {
            plain("CcdDfFhiknqrtTvVwxyzZSL", "abeEIoOpPsuUXAl", &["--output=", "--trace=", "--follow-forks"])
        }
        "time" | "gtime" => plain("pvaqV", "fo", &["--portability", "--verbose", "--append", "--format=", "--output="]),
        "flock" => Starter {
            operands: 1,
            ..plain(
                "sexnuoFv",
                "wEc",
                &[
                    "--shared",
                    "--exclusive",
                    "--nonblock",
                    "--nb",
                    "--close",
                    "--no-fork",
                    "--verbose",
                    "--wait=",
                    "--timeout=",
                    "--conflict-exit-code=",
                    "--command=",
                ],
            )
        },
        "chroot" => {
            Starter { operands: 1, is_shell: true, ..plain("", "", &["--userspec=", "--groups=", "--skip-chdir"]) }
        }
        "taskset" => Starter { operands: 1, ..plain("ac", "", &["--all-tasks", "--cpu-list"]) },
        "setarch" | "linux32" | "linux64" | "i386" | "x86_64" | "uname26" => Starter {
            operands: usize::from(name == "setarch"),
            optional_operand: true,
            is_shell: true,
            ..plain("BFILRSTXZv3h", "", &["--addr-no-randomize", "--32bit", "--3gb", "--verbose"])
        },
        "unshare" | "nsenter" => Starter {
            attached: if name == "unshare" { "" } else { "rwmunipUCTe" },
            is_shell: true,
            ..plain(
                if name == "unshare" { "fcrmunipUCTaZ" } else { "aFcZ" },
                if name == "unshare" { "RSGw" } else { "tSG" },
                &[
                    "--fork",
                    "--mount",
                    "--net",
                    "--pid",
                    "--user",
                    "--map-root-user",
                    "--ipc",
                    "--uts",
                    "--cgroup",
                    "--time",
                    "--mount-proc",
                    "--target=",
                    "--root=",
                    "--all",
                ],
            )
        },
        "xargs" => Starter {
            attached: "ile",
            ..plain(
                "0oprtx",
                "adEILnPs",
                &[
                    "--null",
                    "--arg-file=",
                    "--delimiter=",
                    "--replace=",
                    "--max-lines=",
                    "--max-args=",
                    "--max-procs=",
                    "--max-chars=",
                    "--no-run-if-empty",
                    "--interactive",
                    "--verbose",
                    "--open-tty",
                    "--exit",
                    "--eof=",
                ],
            )
        },
        "setpriv" => plain(
            "h",
            "",
            &[
                "--reuid=",
                "--regid=",
                "--clear-groups",
                "--init-groups",
                "--no-new-privs",
                "--inh-caps=",
                "--ambient-caps=",
                "--bounding-set=",
                "--groups=",
                "--reset-env",
            ],
        ),
        "valgrind" | "dbus-run-session" | "debconf" => PLAIN,
        "perf" => Starter { operands: 1, ..PLAIN },
        "start-stop-daemon" => plain("S", "", &["--start"]),
        "rustup" => Starter { operands: 2, ..PLAIN },
        "prlimit" | "choom" | "numactl" | "uclampset" | "runcon" | "capsh" | "cgexec" | "dumb-init" | "tini"
        | "gosu" | "su-exec" | "setuidgid" | "chpst" | "envdir" | "softlimit" | "logsave" | "rlwrap" | "ifne"
        | "cpulimit" | "trickle" | "proot" | "schroot" | "newgrp" | "aa-exec" | "torsocks" | "caffeinate"
        | "systemd-run" | "systemd-inhibit" | "firejail" | "xvfb-run" | "faketime" | "fakeroot" | "busybox"
        | "toybox" => {
            let operands =
                matches!(name, "gosu" | "su-exec" | "setuidgid" | "envdir" | "logsave" | "faketime" | "newgrp");
            Starter { operands: usize::from(operands), is_shell: name != "busybox" && name != "toybox", ..PLAIN }
        }
        _ => return None,
    })
}

/// Returns the arguments of a program that are commands of a shell or begin with the name of a program to start, and their options.
pub(super) fn commands_in_options(name: &str, arguments: &[Word]) -> Vec<(&'static str, Word)> {
    let options: &[&str] = match name {
        "env" => &["-S", "--split-string"],
        "flock" => &["-c", "--command"],
        "split" => &["--filter"],
        "tar" | "gtar" | "bsdtar" => &[
            "-I",
            "--checkpoint-action",
            "-F",
            "--use-compress-program",
            "--to-command",
            "--info-script",
            "--new-volume-script",
            "--rsh-command",
        ],
        "rsync" => &["-e", "--rsh"],
        "strace" | "ltrace" => &["-o", "--output"],
        "npx" => &["-c", "--call"],
        _ if is_compiler(name) => &["-wrapper"],
        _ => return Vec::new(),
    };
    let mut found = Vec::new();
    for (at, word) in arguments.iter().enumerate() {
        for option in options {
            let known = word.beginning();
            // Letters of other options may stand before it in the same word.
            let letters = known.strip_prefix('-').filter(|letters| !letters.starts_with('-'));
            let letter = option.strip_prefix('-').filter(|letter| letter.len() == 1);
            let clustered = letters.zip(letter).and_then(|(letters, letter)| Some(letters.split_once(letter)?.1));
            let Some(rest) = known.strip_prefix(option).or(clustered) else { continue };
            let is_alone = rest.is_empty() && word.literal().is_some();
            let given = if is_alone { arguments.get(at + 1) } else { Some(word) };
            found.extend(given.map(|word| (*option, word.clone())));
        }
    }
    found
}

/// Whether the code of a program, which is no shell, may have commands of one in it.
pub(super) fn has_shell_escapes(name: &str) -> bool {
    const ALL: [&str; 22] = [
        "awk", "gawk", "mawk", "nawk", "sed", "gsed", "ed", "red", "ex", "vi", "vim", "nvim", "view", "sqlite",
        "sqlite3", "gdb", "make", "gmake", "gnuplot", "mysql", "mariadb", "psql",
    ];
    ALL.contains(&name)
}

/// Returns the names of files that a program reads code from though no argument names them.
pub(super) fn own_files(name: &str, texts: &[Option<String>]) -> &'static [&'static str] {
    let is_interactive = |text: &String| {
        matches!(text.as_str(), "--login")
            || (text.starts_with('-') && !text.starts_with("--") && text.contains(['i', 'l']))
    };
    match name {
        "make" | "gmake" => &["Makefile", "makefile", "GNUmakefile"],
        "bash" | "sh" | "dash" if texts.iter().flatten().any(is_interactive) => {
            &[".bashrc", ".profile", ".bash_profile", ".bash_login"]
        }
        _ => &[],
    }
}

/// Whether a program copies or renames files.
pub(super) fn moves_files(name: &str) -> bool {
    const ALL: [&str; 15] = [
        "mv", "cp", "ln", "install", "rename", "rsync", "tar", "cpio", "pax", "unzip", "scp", "link", "ditto", "gzip",
        "patch",
    ];
    ALL.contains(&name)
}

/// Whether a program may write what it reads to one of its operands.
pub(super) fn writes_operands(name: &str) -> bool {
    const ALL: [&str; 13] =
        ["tee", "sponge", "dd", "cp", "mv", "install", "ln", "sort", "uniq", "split", "csplit", "xxd", "openssl"];
    ALL.contains(&name)
}

/// Whether a program prints variables of the environment.
pub(super) fn prints_environment(name: &str) -> bool {
    matches!(name, "printenv" | "envsubst" | "ps" | "pargs" | "m4" | "history" | "export" | "systemctl")
}

/// Whether an option of a program takes an argument that names no program, and nothing that one is read from.
pub(super) fn is_harmless(name: &str, option: &str) -> bool {
    match name {
        "tar" | "gtar" | "bsdtar" => matches!(option, "-C" | "--directory" | "--exclude" | "--strip-components"),
        "git" => matches!(option, "-b" | "--branch" | "--depth"),
        "rsync" => matches!(option, "--exclude" | "--include" | "--bwlimit"),
        "scp" => matches!(option, "-P" | "-i"),
        "sort" => matches!(option, "-k" | "-t" | "-o" | "-T" | "-S" | "--key" | "--field-separator" | "--output"),
        "wget" => {
            matches!(option, "-O" | "-o" | "-P" | "--header" | "--output-document" | "--post-data" | "--user-agent")
        }
        "split" => matches!(option, "-l" | "-b" | "-n" | "--lines" | "--bytes" | "--number"),
        _ => false,
    }
}

/// Programs that start another one somewhere among their arguments.
pub(super) const CARRIERS: &[&str] = &[
    "docker",
    "podman",
    "nerdctl",
    "kubectl",
    "oc",
    "lxc",
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
    "proxychains",
    "proxychains4",
    "dbus-run-session",
    "entr",
    "start-stop-daemon",
    "daemonize",
    "machinectl",
    "distrobox",
    "toolbox",
    "hyperfine",
    "perf",
    "valgrind",
    "rr",
];

/// Programs of which every argument may become a part of a command.
pub(super) const COMPOSERS: &[&str] = &[
    "parallel",
    "sem",
    "watch",
    "socat",
    "expect",
    "rsh",
    "remsh",
    "mosh",
    "at",
    "batch",
    "ed",
    "red",
    "ex",
    "vi",
    "vim",
    "nvim",
    "view",
    "rvim",
    "vimdiff",
    "run-parts",
    "capsh",
    "newgrp",
    "sg",
];

/// Programs with options that start a program or take one of the command's caller: a value needs `--` before it.
pub(super) fn has_dangerous_options<'t>(name: &str, mut arguments: impl Iterator<Item = &'t str>) -> bool {
    match name {
        "tar" | "gtar" | "bsdtar" | "rsync" | "scp" | "sftp" | "make" | "gmake" | "man" | "split" | "cpio"
        | "tcpdump" | "hg" | "install" | "c89" | "c99" | "rustc" | "sed" | "gsed" | "sort" | "wget" | "zip"
        | "script" | "gdb" | "rust-gdb" | "prove" | "apt" | "apt-get" | "apt-cache" | "dpkg" | "dpkg-architecture"
        | "pydoc3" | "pip" | "pip3" | "npm" | "cargo" | "ld" | "nm" => true,
        "git" => arguments.any(|argument| GIT.contains(&argument)),
        _ => is_compiler(name),
    }
}

/// Whether a name is that of a C compiler, as `gcc-12` and `x86_64-linux-gnu-g++`.
fn is_compiler(name: &str) -> bool {
    const ALL: [&str; 7] = ["gcc", "g++", "cc", "c++", "cpp", "clang", "clang++"];
    let number = |last: char| last.is_ascii_digit() || last == '.' || last == '-';
    let name = name.trim_end_matches(number);
    ALL.contains(&name.rsplit('-').next().unwrap_or_default())
}

/// Whether a program is given patterns or texts that it prints, in which a `$` stands for itself.
pub(super) fn takes_patterns(name: &str) -> bool {
    const ALL: [&str; 21] = [
        "grep", "egrep", "fgrep", "rg", "ag", "ack", "jq", "yq", "gojq", "jaq", "envsubst", "echo", "printf", "cat",
        "tr", "cut", "expr", "find", "logger", "curl", "http",
    ];
    ALL.contains(&name)
}

/// Whether a program writes what it reads to files that its arguments name.
pub(super) fn writes_files(name: &str) -> bool {
    const ALL: [&str; 18] = [
        "curl", "wget", "sort", "shuf", "iconv", "split", "csplit", "patch", "sed", "gsed", "awk", "gawk", "mawk",
        "openssl", "xxd", "uniq", "script", "scp",
    ];
    ALL.contains(&name)
}

/// Whether a module of Python executes what it is given; one that is not known may.
pub(super) fn executes_arguments(module: Option<&str>) -> bool {
    const ALL: [&str; 11] =
        ["timeit", "code", "pdb", "cProfile", "profile", "trace", "runpy", "unittest", "doctest", "pydoc", "IPython"];
    module.is_none_or(|module| ALL.contains(&module))
}

/// The commands of git with options that name a program.
const GIT: [&str; 14] = [
    "fetch-pack",
    "send-pack",
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
    &["eval", "alias", "enable", "bind", "complete", "compgen", "compopt", "hash", "fc", "history", "jobs"];
