//! Programs that start another program, which is among their arguments.

/// A program that starts another one, which is among its arguments behind options, assignments and operands of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Starter {
    /// The letters of options that take an argument.
    takes: &'static str,
    /// The letters of options that take no argument.
    flags: &'static str,
    /// The letters of options whose argument is the rest of the word, if there is any.
    attached: &'static str,
    /// Long options, those that take an argument with a `=` behind the name.
    long: &'static [&'static str],
    /// The number of operands before the program.
    pub(crate) operands: usize,
    /// Whether the operand before the program may be left out.
    pub(crate) optional_operand: bool,
    /// Whether assignments can be before the program.
    pub(crate) assigns: bool,
    /// Whether it starts a shell if no program is named.
    pub(crate) is_shell: bool,
}

/// The role of the word behind an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OptionOf {
    /// The word does not belong to the option.
    Flag,
    /// The word is the option's argument.
    Takes,
    Unknown,
}

impl Starter {
    /// Returns the role of the word behind an option, or behind the letters of several options. `is_whole` says whether
    /// all of the word is known.
    pub(crate) fn option(&self, word: &str, is_whole: bool) -> OptionOf {
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

const fn plain(flags: &'static str, takes: &'static str, long: &'static [&'static str]) -> Starter {
    Starter { flags, takes, long, ..PLAIN }
}

/// Returns how a program starts another one, if it does nothing but that.
pub(crate) fn starter(name: &str) -> Option<Starter> {
    if name.starts_with("ld-") || name.starts_with("ld.so") {
        let long =
            &["--library-path=", "--preload=", "--argv0=", "--inhibit-cache", "--inhibit-rpath=", "--list", "--verify"];
        return Some(plain("", "", long));
    }
    conduct(name).or_else(|| isolation(name)).or_else(|| xargs(name)).or_else(|| other(name))
}

/// Returns how a program starts another one with another environment, priority, time or user, or watches it.
fn conduct(name: &str) -> Option<Starter> {
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
        _ => return None,
    })
}

/// Returns how a program starts another one with other rights, locks or resources.
fn isolation(name: &str) -> Option<Starter> {
    Some(match name {
        "flock" => flock(),
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
        "unshare" | "nsenter" => namespaces(name),
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
        _ => return None,
    })
}

fn flock() -> Starter {
    Starter {
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
    }
}

/// Returns how a program that makes or enters namespaces starts another one.
fn namespaces(name: &str) -> Starter {
    Starter {
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
    }
}

/// Returns how `xargs` starts another program.
fn xargs(name: &str) -> Option<Starter> {
    Some(match name {
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
        _ => return None,
    })
}

/// Returns how a program starts another one, if it has few options of its own or its options are not known.
fn other(name: &str) -> Option<Starter> {
    Some(match name {
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
