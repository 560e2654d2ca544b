//! Common programs: which of their arguments they execute, and whether they execute their stdin.

mod interpreters;
mod starters;

use super::parse::ShellWord;
pub(super) use interpreters::{Interpreter, Operand, interpreter};
pub(super) use starters::{OptionOf, Starter, starter};

/// Whether the code that a program is given is that of a shell.
pub(super) fn takes_commands(name: &str) -> bool {
    matches!(name, "su" | "runuser" | "script" | "sg" | "at" | "batch" | "parallel" | "sem")
}

/// Returns the arguments of a program that are commands of a shell or begin with the name of a program to start, and their options.
pub(super) fn commands_in_options(name: &str, arguments: &[ShellWord]) -> Vec<(&'static str, ShellWord)> {
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
            // Letters of other options may be before it in the same word.
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

/// Returns the names of files from which a program reads code although no argument names them.
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

/// Returns the file of the current directory that says what a program executes.
pub(super) fn file_of_the_directory(name: &str, texts: &[Option<String>]) -> Option<&'static str> {
    let file = match name {
        "make" | "gmake" => "Makefile",
        "ninja" => "build.ninja",
        "just" => "justfile",
        "rake" => "Rakefile",
        "npm" | "npx" | "pnpm" | "yarn" | "bun" => "package.json",
        "cargo" => "Cargo.toml",
        "mvn" => "pom.xml",
        "gradle" => "build.gradle",
        "ant" => "build.xml",
        "tox" => "tox.ini",
        "nox" => "noxfile.py",
        "pytest" => "conftest.py",
        "vagrant" => "Vagrantfile",
        "direnv" => ".envrc",
        "run-parts" => ".",
        _ if name.starts_with("python") && texts.iter().flatten().any(|text| text == "-m") => "the module",
        _ => return None,
    };
    let is_shown = matches!(texts, [Some(text)] if matches!(text.as_str(), "--version" | "--help" | "-V" | "-h"));
    (!is_shown).then_some(file)
}

/// Whether an option of such a program takes the place of its file, or the file.
pub(super) fn names_a_place(option: &str) -> bool {
    const ALL: [&str; 8] =
        ["-C", "-f", "--directory", "--file", "--makefile", "--manifest-path", "--prefix", "--project"];
    ALL.contains(&option)
}

/// Whether a program copies or renames files.
pub(super) fn moves_files(name: &str) -> bool {
    const ALL: [&str; 15] = [
        "mv", "cp", "ln", "install", "rename", "rsync", "tar", "cpio", "pax", "unzip", "scp", "link", "ditto", "gzip",
        "patch",
    ];
    ALL.contains(&name)
}

/// Whether a program may write its input to one of its operands.
pub(super) fn writes_operands(name: &str) -> bool {
    const ALL: [&str; 13] =
        ["tee", "sponge", "dd", "cp", "mv", "install", "ln", "sort", "uniq", "split", "csplit", "xxd", "openssl"];
    ALL.contains(&name)
}

/// Whether a program prints variables of the environment.
pub(super) fn prints_environment(name: &str) -> bool {
    matches!(name, "printenv" | "envsubst" | "ps" | "pargs" | "m4" | "history" | "export" | "systemctl")
}

/// Whether an option of a program takes an argument that names neither a program nor a file that one is read from.
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

/// Programs whose arguments may each become a part of a command.
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

/// Whether a program has options that start a program, or take one from the command's caller: a value needs `--` before it.
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

/// Whether a program writes its input to files that its arguments name.
pub(super) fn writes_files(name: &str) -> bool {
    const ALL: [&str; 18] = [
        "curl", "wget", "sort", "shuf", "iconv", "split", "csplit", "patch", "sed", "gsed", "awk", "gawk", "mawk",
        "openssl", "xxd", "uniq", "script", "scp",
    ];
    ALL.contains(&name)
}

/// Whether a module of Python executes its arguments; an unknown module may.
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
