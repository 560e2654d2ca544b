//! Finds where the values that a command is given are read as code.
//!
//! A command of bash has an author, and receives values that somebody else chose, in variables and on stdin: untrusted
//! values. [`scan`] finds the places where the command would not only pass such a value on but execute it, split it, or
//! let it decide which program is started. It follows values through variables, pipes, substitutions and files that the
//! command writes, and reports what it cannot read.
//!
//! The compiler scans the commands in a graph; the runtime scans each command again before it starts it.

// Libraries speak through values and `tracing`; only the command line prints.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod filters;
mod follow;
mod names;
mod parse;
mod programs;

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

pub use names::{RESERVED, is_read, is_variable};

/// A place where a value that somebody else chose is read as code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Danger {
    /// The value.
    pub origin: ValueOrigin,
    /// How it is read.
    pub how: How,
    /// Its range, in bytes of the command; for the arguments of a program, in arguments from 0.
    pub range: Range<usize>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ValueOrigin {
    /// A variable of the environment.
    Variable(String),
    /// The stdin of the command.
    Stdin,
    /// An argument of the program, from 1; 0 is the program's own name.
    Argument(usize),
    /// Any value that the command is given: the command cannot be followed.
    Anything,
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) if name == "PWD" => f.write_str("the directory in which the command begins"),
            Self::Variable(name) => write!(f, "the value of `${name}`"),
            Self::Stdin => f.write_str("what the command reads from `stdin`"),
            Self::Argument(0) => f.write_str("the program's name"),
            Self::Argument(at) => write!(f, "argument {at}"),
            Self::Anything => f.write_str("a value that the command is given"),
        }
    }
}

/// How a value is read as code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// Without quotes: it becomes several words, and patterns in it file names.
    Split,
    /// As an arithmetic expression, in which bash executes the commands of a subscript.
    Arithmetic,
    /// As the name of a variable, with the commands of its subscript.
    Name,
    /// As the program to start.
    Program,
    /// As code that this reader executes.
    Code(String),
    /// As the value of a variable that decides what bash or a program does.
    Environment(String),
    /// As an option of this program, one of whose options starts another program.
    Option(String),
    /// By `${name@P}`, `${!name}` and the like, which expand it once more.
    Expanded,
    /// As the directory of a file that is executed, which is named here.
    Directory(String),
    /// By a program whose name is not known before the command runs.
    Unknown,
    /// The command cannot be read.
    Unreadable,
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Split => f.write_str("is split into words and expanded as patterns, because it is outside of quotes"),
            Self::Arithmetic => f.write_str("is evaluated as arithmetic, where bash executes commands in a subscript"),
            Self::Name => f.write_str("is the name of a variable, and bash executes commands in its subscript"),
            Self::Program => f.write_str("decides which program is started"),
            Self::Code(reader) => write!(f, "becomes code that `{reader}` executes"),
            Self::Environment(name) => {
                write!(f, "becomes the value of `{name}`, which decides what bash and programs do")
            }
            Self::Option(program) => write!(f, "may be an option of `{program}`, and one of those starts a program"),
            Self::Expanded => f.write_str("is expanded once more, with the commands in it"),
            Self::Directory(file) => write!(f, "decides which file is executed as `{file}`"),
            Self::Unknown => f.write_str("is given to a program whose name is known only when the command runs"),
            Self::Unreadable => f.write_str("may become code: this command cannot be read"),
        }
    }
}

impl How {
    /// Says what to write instead.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Split => "put it in double quotes",
            Self::Arithmetic => {
                "make the value a number where it comes from, or compare it with `[ … -gt … ]`, which evaluates nothing"
            }
            Self::Name => "write the variable's name in the command",
            Self::Program => "write the program's name in the command",
            Self::Code(_) => {
                "write the code in the command, and pass it the value as an argument, as in `bash -c '… \"$1\"' _ \"$NAME\"`"
            }
            Self::Environment(_) => "give the value to a variable with another name",
            Self::Option(_) => "write `--` before it",
            Self::Expanded => "use the value as it is: `\"$NAME\"`",
            Self::Directory(_) => {
                "write the whole path of the file, from `/`, and pass the directory to it as an argument"
            }
            Self::Unknown => "write the program's name in the command",
            Self::Unreadable => "write it in a simpler way",
        }
    }
}

/// The untrusted values that a command is given: those that somebody else chose.
#[derive(Debug, Clone, Default)]
pub struct Foreign {
    /// The untrusted variables.
    pub variables: Vec<String>,
    /// Whether the command's stdin is untrusted.
    pub stdin: bool,
}

impl Foreign {
    /// Says whether somebody else chose the directory in which a command begins: `PWD` holds its name.
    #[must_use]
    pub fn in_directory(mut self, is_foreign: bool) -> Self {
        self.variables.extend(is_foreign.then(|| "PWD".to_owned()));
        self
    }

    /// Whether nothing is untrusted.
    pub fn is_nothing(&self) -> bool {
        self.variables.is_empty() && !self.stdin
    }
}

/// Finds where a command of bash reads untrusted values as code, in the order of the text.
pub fn scan(command: &str, foreign: &Foreign) -> Vec<Danger> {
    if foreign.is_nothing() {
        return Vec::new();
    }
    follow::command(command, foreign).0
}

/// Returns the variables that a command of bash expands itself; none if the command cannot be read.
pub fn expanded(command: &str) -> BTreeSet<String> {
    follow::expanded(command)
}

/// An argument of a program that no shell reads.
#[derive(Debug, Clone, Copy)]
pub struct ProgramArgument<'a> {
    /// Its text, or the known beginning of it.
    pub text: &'a str,
    /// Whether an untrusted value follows `text`.
    pub is_foreign: bool,
}

/// Finds which arguments a program would read as code, in their order. The first argument is the program itself.
pub fn scan_program(arguments: &[ProgramArgument<'_>], foreign: &Foreign) -> Vec<Danger> {
    if foreign.is_nothing() && !arguments.iter().any(|argument| argument.is_foreign) {
        return Vec::new();
    }
    follow::program(arguments, foreign).0
}

#[cfg(test)]
mod growth;

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans a command with untrusted variables and, if `stdin` is true, with an untrusted stdin.
    fn dangers(command: &str, stdin: bool) -> Vec<Danger> {
        scan(command, &Foreign { variables: vec!["X".to_owned(), "Y1".to_owned()], stdin })
    }

    #[test]
    fn values_in_quotes_are_passed_on_and_no_danger() {
        for command in [
            "echo hi",
            "echo \"$X\"",
            "find \"$X\" -type f | wc -l | tr -d ' '",
            "wc -l < \"$X\"",
            "find \"$X\" -name '*.py' | head -n 3",
            "Y=$X; Z=\"$Y\"; echo \"$Z\"",
            "case $X in a*) echo a;; b|c) echo \"$X\";; *) exit 1;; esac",
            "if [ \"$X\" = a ] && [ -n \"$X\" ]; then echo yes; elif [ \"$X\" -gt 1 ]; then :; else echo no; fi",
            "[[ $X == a* || -z $X ]] && echo \"$X\"",
            "[[ $X =~ ^(a|b)[0-9]+$ ]]",
            "n=$(wc -l < \"$X\"); [[ $n -gt 3 ]] && echo $((n + 1))",
            "n=$(grep -c error \"$X\"); echo $((n * 2))",
            "count=0; for f in *.txt; do count=$((count + 1)); done; echo \"$count $X\"",
            "for f in $X; do echo \"$f\"; done",
            "while read -r line; do echo \"$line\"; done <<< \"$X\"",
            "bash -c 'echo \"$1\"' _ \"$X\"",
            "python3 script.py \"$X\"",
            "python3 -c 'import sys; print(sys.argv[1])' \"$X\"",
            "awk -v x=\"$X\" '{ print x }' file",
            "awk '{ print }' \"$X\"",
            "sed -e 's/a/b/' -- \"$X\"",
            "sed -n '1p' -- \"$X\"",
            "jq --arg k \"$X\" '.[$k]' file.json",
            "git clone -- \"$X\" target",
            "git log \"$X\"",
            "tar -xf archive.tar -- \"$X\"",
            "curl -fsS \"$X\" -o out",
            "f() { echo \"$1\"; }; f \"$X\"",
            "cat <<EOF\nhello $X\nEOF",
            "cat <<'EOF' > file\n$X $(id)\nEOF\necho \"$X\"",
            "a=(\"$X\" b); echo \"${a[0]}\" \"${a[@]}\"",
            "declare -A m; m[\"$X\"]=1; echo \"${m[$X]}\"",
            "echo \"${X:-none} ${X%/*} ${X//a/b} ${#X} ${X^^}\"",
            "printf '%s\\n' \"$X\"",
            "export TOKEN=\"$X\"; ./deploy.sh",
            "TOKEN=\"$X\" ./deploy.sh",
            "set -euo pipefail\ncd \"$X\"\nls",
            "test -f \"$X\" || { echo missing >&2; exit 3; }",
            "trap 'rm -f tmp' EXIT; cp \"$X\" tmp",
            "(cd \"$X\" && ls) | sort",
            "sort < <(cat \"$X\")",
            "x=`basename \"$X\"`; echo \"$x\"",
            "echo \"$(basename \"$X\" .txt)\"",
            "xargs -0 rm -f -- < list; echo \"$X\"",
            "find . -name '*.c' -exec grep -l \"$X\" {} +",
            "find . -exec sh -c 'wc -l \"$1\"' _ {} \\; ; echo \"$X\"",
            "timeout 5 grep -F \"$X\" file",
            "ssh host uptime; echo \"$X\"",
            "ssh -- \"$X\" uptime",
            "for ((i = 0; i < 3; i++)); do echo \"$X\"; done",
            "echo \"$X\" >> log 2>&1 &\nwait",
            "PYTHON=python3; $PYTHON script.py \"$X\"",
            "n=$(printf %s \"$X\" | tr -cd 0-9); echo $((n + 1))",
            "until ping -c1 \"$X\"; do sleep 1; done",
            "select y in a b; do echo $y; break; done; echo \"$X\"",
            "if ! command -v jq >/dev/null; then echo \"$X\"; fi",
            "# it's a comment\necho \"$X\" # don't",
            "echo {a,b} ~ *.txt ?(x) \"$X\"",
            "[ ! -e \"$X\" ] && mkdir -p -- \"$X\"",
        ] {
            assert_eq!(dangers(command, false), [], "{command}");
        }
        for command in [
            "cat",
            "cat > file",
            "wc -l",
            "python3 script.py",
            "sort | uniq -c",
            "jq .name",
            "while read -r l; do echo \"$l\"; done",
        ] {
            assert_eq!(dangers(command, true), [], "{command}");
        }
    }

    #[test]
    fn files_in_a_foreign_directory_are_not_executed() {
        let foreign = || Foreign { variables: vec!["X".to_owned()], stdin: false }.in_directory(true);
        for command in [
            "ls",
            "find . -type f | wc -l",
            "/opt/run.sh",
            "bash /opt/run.sh",
            "make -f /opt/Makefile",
            "make -C /opt all",
            "cargo --manifest-path=/opt/Cargo.toml run",
            "make --version",
            "python3 -c 'print(1)'",
            "git log -- \"$X\"",
            "tar -xf archive.tar",
            "env -C /opt ls",
            "bash -c 'ls'",
        ] {
            assert_eq!(scan(command, &foreign()), [], "{command}");
        }
        for command in [
            "./run.sh",
            "../run.sh",
            "bin/run",
            "bash run.sh",
            "sh ./run.sh a",
            ". ./env.sh",
            "source env.sh",
            "python3 script.py",
            "node script.js",
            "make",
            "make -f other.mk",
            "npm test",
            "cargo build",
            "python3 -m tool",
            "timeout 5 ./run.sh",
            "env ./run.sh",
            "bash -c './run.sh'",
            "echo a | xargs ./run.sh",
            "find . -name a -exec ./run.sh {} \\;",
            "x=$(./run.sh)",
            "f() { ./run.sh; }; f",
            "trap ./run.sh EXIT",
        ] {
            let how: Vec<How> = scan(command, &foreign()).into_iter().map(|danger| danger.how).collect();
            assert!(matches!(how.as_slice(), [How::Directory(_), ..]), "{command}: {how:?}");
        }
        for command in [
            "cd \"$X\" && ./run.sh",
            "pushd \"$X\"; bash run.sh",
            "(cd -- \"$X\"; make)",
            "env -C \"$X\" ./run.sh",
            "env --chdir \"$X\" make",
            "sudo -D \"$X\" ./run.sh",
            "find \"$X\" -execdir ./run.sh \\;",
            "npm --prefix \"$X\" test",
            "cargo run --manifest-path \"$X/Cargo.toml\"",
        ] {
            let found = dangers(command, false);
            assert!(found.iter().any(|danger| matches!(danger.how, How::Directory(_))), "{command}: {found:?}");
            assert_eq!(scan(command, &Foreign::default()), [], "{command}");
        }
        let argument = |text| ProgramArgument { text, is_foreign: false };
        let nothing = Foreign::default();
        for (words, is_fine) in
            [(&["python3", "a.py"][..], false), (&["make"], false), (&["ls", "a"], true), (&["sh", "/a.sh"], true)]
        {
            let arguments: Vec<ProgramArgument<'_>> = words.iter().copied().map(argument).collect();
            assert_eq!(scan_program(&arguments, &foreign()).is_empty(), is_fine, "{words:?}");
            assert_eq!(scan_program(&arguments, &nothing), [], "{words:?}");
        }
    }

    #[test]
    fn values_that_are_read_as_code_are_found() {
        let mut missed = Vec::new();
        for command in [
            "echo $X",
            "echo a${X}b",
            "ls $(echo \"$X\")",
            "find . $X",
            "$X",
            "\"$X\" a",
            "\"$X/run\" a",
            "eval \"$X\"",
            "eval echo \"$X\"",
            "eval 'echo $X'",
            "Y=\"$X\"; eval \"$Y\"",
            "while :; do eval \"$Y\"; Y=\"$X\"; done",
            "bash -c \"$X\"",
            "bash -lc \"echo $X\"",
            "sh -c 'eval \"$1\"' _ \"$X\"",
            "sh -c 'echo $1' _ \"$X\"",
            "bash \"$X\"",
            "bash <<< \"$X\"",
            "bash <<EOF\necho $X\nEOF",
            "bash <<'EOF'\necho $X\nEOF",
            "echo \"$X\" | bash",
            "echo \"$X\" | tee f | sh -s",
            "echo \"$X\" > t.sh; bash t.sh",
            "echo \"$X\" > t.sh; . ./t.sh; source t.sh",
            "echo \"$X\" | tee script.sh > /dev/null; . ./script.sh",
            "bash <(echo \"$X\")",
            "source <(echo \"$X\")",
            ". \"$X\"",
            "echo $((X + 1))",
            "echo $(($X + 1))",
            "echo $[X]",
            "((X > 1))",
            "for ((i = 0; i < X; i++)); do :; done",
            "[[ $X -gt 1 ]]",
            "[[ 1 -lt X ]]",
            "let \"Y = X + 1\"",
            "let Y=X",
            "echo \"${a[X]}\"",
            "echo \"${a[$X]}\"",
            "echo \"${Y:X:1}\"",
            "a[$X]=1",
            "a=([$X]=1)",
            "declare -i Y; Y=\"$X\"",
            "declare -i Y=\"$X\"",
            "declare -i X",
            "declare \"$X\"",
            "export \"$X\"",
            "declare -n Y=\"$X\"",
            "printf -v \"$X\" hi",
            "printf \"$X\" hi",
            "read -r \"$X\" <<< a",
            "read -a \"$X\" <<< a",
            "mapfile -C \"$X\" -c 1 a < f",
            "test -v \"$X\"",
            "[ -v \"$X\" ]",
            "[[ -v $X ]]",
            "[ \"$X\" \"$Y1\" ]",
            "unset \"$X\"",
            "trap \"$X\" EXIT",
            "trap \"rm $X\" EXIT",
            "trap 'eval $X' EXIT",
            "echo \"${X@P}\"",
            "echo \"${!X}\"",
            "PS4=\"$X\"; set -x; echo",
            "PATH=\"$X:$PATH\"; ls",
            "PATH=\"$X\" ls",
            "env LD_PRELOAD=\"$X\" ls",
            "env \"$X\" ls",
            "sudo \"$X\"",
            "sudo -u me bash -c \"$X\"",
            "timeout 5 bash -c \"$X\"",
            "env A=b bash -c \"$X\"",
            "xargs sh -c \"$X\"",
            "echo \"$X\" | xargs sh -c 'eval \"$0\"'",
            "echo \"$X\" | xargs -I{} sh -c 'echo {}'",
            "find . -exec sh -c \"$X\" \\;",
            "find . -exec $X \\;",
            "docker exec box sh -c \"$X\"",
            "awk \"$X\" f",
            "awk -f \"$X\" f",
            "sed \"s/a/$X/\" f",
            "sed -e \"$X\" f",
            "perl -e \"$X\"",
            "perl -ne \"print $X\"",
            "python3 -c \"print('$X')\"",
            "node --eval \"$X\"",
            "node -e \"$X\"",
            "jq \".$X\" f",
            "sqlite3 db \"select '$X'\"",
            "psql -c \"select '$X'\"",
            "ssh host \"$X\"",
            "ssh host ls \"$X\"",
            "ssh \"$X\" uptime",
            "git clone \"$X\"",
            "git -C d fetch \"$X\"",
            "tar -xf \"$X\"",
            "tar xf \"$X\"",
            "watch \"ls $X\"",
            "parallel \"$X\"",
            "echo \"$X\" | parallel",
            "su -c \"$X\"",
            "alias ll=\"$X\"",
            "compgen -W \"$X\"",
            "f() { eval \"$1\"; }; f \"$X\"",
            "f() { eval \"$Y\"; }; Y=$X; f",
            "set -- \"$X\"; eval \"$1\"",
            "read -r Y <<< \"$X\"; eval \"$Y\"",
            "read -r PATH <<< \"$X\"",
            "for Y in $X; do $Y; done",
            "Y=${X}; $Y",
            "Y=$(cat <<< \"$X\"); $Y",
            "Y=`echo \"$X\"`; eval \"$Y\"",
            "x=$(eval \"$X\")",
            "\"$tool\" \"$X\"",
            "if true; then (eval \"$X\"); fi",
            "case a in a) eval \"$X\";; esac",
            "busybox sh -c \"$X\"",
            "exec bash -c \"$X\"",
            "command eval \"$X\"",
            "builtin eval \"$X\"",
            "/bin/bash -c \"$X\"",
            "echo 'unfinished \"$X\"",
        ] {
            if dangers(command, false).is_empty() {
                missed.push(command);
            }
        }
        for command in [
            "bash",
            "sh -s",
            "bash -",
            "python3",
            "python3 -",
            "perl",
            "cat | bash",
            "X2=$(cat); eval \"$X2\"",
            "eval \"$(cat)\"",
            "source /dev/stdin",
            "bash /dev/stdin",
            "while read -r l; do eval \"$l\"; done",
            "read n; echo $((n))",
            "xargs sh -c 'eval $0'",
            "{ bash; }",
            "(bash)",
            "if true; then bash; fi",
            "f() { bash; }; f",
            "mapfile -t a; eval \"${a[0]}\"",
            "exec bash",
            "nohup bash",
            "env bash",
            "read n; [[ n -gt 1 ]]",
            "sqlite3 db",
            "dc",
            "node",
            "parallel",
            "crontab -",
            "read -r a b; $b",
        ] {
            if dangers(command, true).is_empty() {
                missed.push(command);
            }
        }
        assert_eq!(missed, Vec::<&str>::new());
    }

    #[test]
    fn commands_with_fully_traced_values_stay_accepted() {
        let mut reported = Vec::new();
        for command in [
            "ls > log 2>&1; echo \"$X\" >&2",
            "[[ $X =~ ^v?([0-9]+)$ ]] && echo \"${BASH_REMATCH[1]}\"",
            "SECONDS=0; echo \"$X $SECONDS\"",
            "exec 3< list; while read -r l <&3; do echo \"$l\"; done; echo \"$X\"",
            "exec > log 2>&1; echo \"$X\"",
            "f=$(mktemp); printf %s \"$X\" > \"$f\"; python3 tool.py \"$f\"; rm -f \"$f\"",
            "f=$(mktemp); printf %s \"$X\" > \"$f\"; bash script.sh \"$f\"",
            "d=\"$(mktemp -d)\"; echo \"$X\" > \"$d/data\"; bash script.sh \"$d/data\"",
            "echo \"$X\" > data.txt; bash script.sh data.txt",
            "bash script.sh \"$X\"",
            "echo 'echo \"$1\"' | bash -s -- \"$X\"",
            "bash -s -- \"$X\" <<< 'echo \"$1\"'",
            "bash <<< 'echo \"$X\"'",
            "env Q=\"$X\" bash -c 'echo \"$Q\"'",
            "flock lock -c 'echo \"$X\"'",
            "flock lock echo \"$X\"",
            "flock -- \"$X\" echo",
            "flock -w 5 lock echo \"$X\"",
            "tar -xf archive.tar -C \"$X\"",
            "ssh -i \"$X\" host true",
            "ssh -p 22 host uptime; echo \"$X\"",
            "xargs -n 1 echo \"$X\" < list",
            "xargs -I{} cp {} \"$X\" < list",
            "for f in *.txt; do wc -l \"$f\"; done; echo \"$X\"",
            "n=3; echo $((n)) \"$X\"",
            "echo \"X is $X\"; i=0; echo $((i + 1))",
            "log() { echo \"$*\"; }; log \"$X\"",
            "declare -A m; m[\"$X\"]=1; [[ -v m[a] ]]",
            "perl -e 'print $ARGV[0]' \"$X\"",
            "git -C d commit -m \"$X\"",
            "timeout -k 1 5 grep -F \"$X\" f",
            "timeout --signal=KILL 5 grep -F \"$X\" f",
            "nice -n 5 sort -- \"$X\"",
            "sudo -u me cat \"$X\"",
            "bash < script.sh; echo \"$X\"",
            "cat \"$X\" | sort -u > out; wc -l out",
            "printf '%s\\n' \"$X\" $'a\\tb'",
            "IFS=$'\\n' read -r l <<< \"$X\"; echo \"$l\"",
            "echo hi >(tee log) \"$X\"",
            "env | sort; echo \"$X\"",
            "set -eu; set -o pipefail; echo \"$X\"",
            "set -x -- \"$X\"; echo \"$1\"",
            "local_name() { local a=\"$1\" b; b=$a; echo \"$b\"; }; local_name \"$X\"",
            "python3 -u -W ignore script.py \"$X\"",
            "python3 -c 'import os; print(os.environ[\"X\"])'",
            "sed -n -E -e 's/a/b/p' -- \"$X\"",
            "sed -i 's/a/b/' -- \"$X\" && sha256sum \"$X\" | cut -d ' ' -f 1",
            "sed -i.bak -e 's/a/b/' -- \"$X\"",
            "xargs -i cp {} \"$X\" < list",
            "awk -F, -v x=\"$X\" '{ print $1, x }' file",
            "awk -F'|' '{ print $1 | \"sort\" }' <<< \"$X\"",
            "sed -e 's/e/x/g; /e/d' <<< \"$X\"",
            "jq -r --arg a \"$X\" --arg b c '.[$a]' file.json",
            "cat > f <<'E'\necho hi\nE\nbash f; echo \"$X\"",
            "n=$(stat -c %s -- \"$X\"); [ $((n / 1024)) -gt 5 ]",
            "n=$(stat --format=%Y \"$X\"); echo $((n + 1))",
            "n=$(date -d \"$X\" +%s); echo $((n + 1))",
            "echo $(( $(date -u -d \"$X\" +%Y%m%d) + 1 ))",
            "n=$(stat -c %s -- \"$X\" 2>/dev/null); echo $((n + 1))",
            "tar -czf \"/backup/$X.tar.gz\" dir; tar -xzf \"./$X\"; rsync -a \"/srv/$X\" b/; install -D \"./$X\" \"/opt/$X\"",
            "OPTS=\"-l -a\"; ls $OPTS -- \"$X\"",
            "find \"$X\" -name '*.txt' -exec grep -l a {} + -exec sh -c 'echo \"$1\"' _ {} \\;",
            "find . -name \"$X\" -print; find . -type f -exec chmod a+r {} \\;",
            "declare -A m; while read -r k; do m[$k]=1; done <<< \"$X\"; echo \"${m[$X]}\"",
            "f() { local -A seen; seen[$1]=1; echo \"${seen[$1]}\"; }; f \"$X\"",
            "PS4='+ '; export LESS=-R; set -x; echo \"$X\"",
            "docker run -e X image sh -c 'echo \"$X\"'",
            "jq --arg X \"$X\" '.[] | select(.a == $X)' f; grep 'a $X) b' f",
            "curl -s -o out.json -- \"$X\"; jq . out.json; bash script.sh",
            "printf '%s\\n' \"$X\" | xargs -n 1 -I{} cp -- {} dir",
            "valgrind ./program \"$X\"; perf stat ./program \"$X\"",
            "npm run build -- \"$X\"; cargo run -- \"$X\"; python3 -m json.tool \"$X\"; python3 -m venv \"$X\"",
            "sudo env - PATH=/bin ls -- \"$X\"",
            "time ls -- \"$X\"; time -p ls -- \"$X\"",
            "mv a b; echo \"$X\" > c; LC_ALL=C sort -- c; export HOME=/tmp",
            "export PATH=\"$HOME/bin:$PATH\"; grep -- \"$X\" f",
            "IFS=,; read -r a b <<< \"$X\"; echo \"$a\" \"$b\"",
            "set -euo pipefail; N=5; head -n $N -- \"$X\" | tail -n +2",
            "for f in *.txt; do grep -c -- \"$X\" \"$f\"; done",
            "d=$(mktemp -d); trap 'rm -rf \"$d\"' EXIT; printf '%s' \"$X\" > \"$d/in\"; sort -- \"$d/in\" > out",
            "curl -fsS -o \"$X\" -- https://example.org/a; sha256sum -- \"$X\"",
            "jq -n --arg a \"$X\" '{a: $a}' | curl -d @- https://example.org",
            "if [ -z \"$X\" ]; then exit 1; elif [[ $X == a* && -n $X ]]; then echo a; fi",
            "sed -E 's/(a|b)/\\1/g; s#x#y#' <<< \"$X\" | awk -F= '$1 == \"k\" { print $2 }'",
            "git -c user.name=bot commit -m \"$X\"; git log --oneline -- \"$X\"",
            "psql -v ON_ERROR_STOP=1 -v name=\"$X\" -f query.sql",
            "case \"$X\" in a|b) echo a ;; *) echo other >&2; exit 2 ;; esac",
            "declare -A m=([a]=1 [b]=2); echo \"${m[$X]:-none}\"",
            "while IFS= read -r line; do printf '%s\\n' \"${line%%,*}\"; done < \"$X\"",
            "docker build -t \"$X\" . && docker push -- \"$X\"",
            "tmp=\"$(mktemp)\"; cat > \"$tmp\" <<< \"$X\"; wc -l < \"$tmp\"; rm -f \"$tmp\"",
            "n=$(grep -ciE -e \"$X\" f); n=$(( n + $(grep --count a -- \"$X\") )); echo $((n))",
            "while getopts a:b o; do echo \"$OPTARG\"; done; echo \"$X\"",
            "n=$(/usr/bin/stat -c %s -- \"$X\" 2> /dev/null); echo $((n + 1))",
            "if ! grep -q \"$X\" f > /dev/null 2>&1; then echo no >&2; fi; n=$(date -d \"$X\" +%s); echo $((n))",
            "out=$(git show -- \"$X\" 2>&1) || echo \"$out\" >&2",
        ] {
            reported.extend(dangers(command, false).into_iter().map(|danger| (command, danger)));
        }
        assert_eq!(reported, []);
    }

    #[test]
    fn implicit_evaluation_by_bash_and_programs_is_found() {
        let mut missed = Vec::new();
        for command in [
            "n=$(stat -c %n -- \"$X\"); echo $((n))",
            "n=$(stat -c %s -- \"$X\" 2>&1); echo $((n))",
            "n=$(stat -c %s \"$X\" 2>&1 | cut -d \"'\" -f 2); echo $((n))",
            "n=$(date -d \"$X\" +%s 2>&1); echo $((n))",
            "n=$(date -d \"$X\" +%s |& cat); echo $((n))",
            "n=$({ date -d \"$X\" +%s; } 2>&1); echo $((n))",
            "f() { stat -c %s \"$X\"; }; n=$(f 2>&1); echo $((n))",
            "exec 2>&1; n=$(date -d \"$X\" +%s); echo $((n))",
            "n=$(grep -c \"$X\" f 2>&1); echo $((n))",
            "stat() { echo \"$4\"; }; n=$(stat -c %s -- \"$X\"); echo $((n))",
            "date -d \"$X\" +%s 2> f; n=$(cat f); echo $((n))",
            "if n=$(stat -c %s \"$X\" 2>&1); then :; fi; echo $((n))",
            "n=$(stat -c %s \"$X\" 2>/dev/null 2>&1); echo $((n))",
            "n=$(stat -c %s \"$X\" 2\\\n>&1); echo $((n))",
            "n=$(cd \"$X\" 2>&1); echo $((n))",
            "n=$( (: < \"$X\") 2>&1); echo $((n))",
            "n=$( (: > \"$X\") 2>&1); echo $((n))",
            "n=$([ \"$X\" -eq 1 ] 2>&1); echo $((n))",
            "n=$(bash -xc ': \"$X\"' 2>&1); echo $((n))",
            "n=$({ set -x; [[ $X == 1 ]]; } 2>&1); echo $((n))",
            "n=$({ set -x; case \"$X\" in esac; } 2>&1); echo $((n))",
            "n=$({ : \"${Y:?$X}\"; } 2>&1); echo $((n))",
            "n=$({ set -x; Y=$X; } 2>&1); echo $((n))",
            "exec 2>&1; n=$(bash -c 'date -d \"$X\" +%s'); echo $((n))",
            "bash -c 'exec 2> f; date -d \"$X\" +%s'; n=$(cat f); echo $((n))",
            "n=$(./stat -c %s -- \"$X\"); echo $((n))",
            "n=$(exit \"$X\" 2>&1); echo $((n))",
            "n=$(kill \"$X\" 2>&1); echo $((n))",
            "n=$(ulimit \"$X\" 2>&1); echo $((n))",
            "n=$(type \"$X\"); echo $((n))",
            "getopts a: o \"$X\"; echo $((OPTARG))",
            "set -- -a \"$X\"; getopts a: o; echo $((OPTARG))",
            "getopts : o \"$X\"; echo $((o))",
            "[[ $X =~ (.*) ]]; echo $((BASH_REMATCH[1]))",
            "echo \"$X\"; echo $(($_))",
            "read -r <<< \"$X\"; echo $((REPLY))",
            "mapfile <<< \"$X\"; echo $((MAPFILE[0]))",
            "select v in \"$X\"; do echo $((v)); done",
            "select v in a; do echo $((REPLY)); done <<< \"$X\"",
            "trap 'echo $((BASH_COMMAND))' DEBUG; : \"$X\"",
            "printf -v n '%s' \"$X\"; echo $((n))",
            "command -v \"$X\" | { read -r n; echo $((n)); }",
            "n=$(hash -t \"$X\"); echo $((n))",
            "n=$(ulimit -n; umask \"$X\" 2>&1); echo $((n))",
            "n=$(bash -c 'type \"$0\"' \"$X\"); echo $((n))",
            "n=$(basename -- \"$X\"); echo $((n))",
            "n=$(wc -l \"$X\"); echo $((n))",
            "n=$(grep -cH a \"$X\"); echo $((n))",
            "n=$(grep -c a f \"$X\"); echo $((n))",
            "n=$(grep -c --with-filename a \"$X\"); echo $((n))",
            "n=$(grep -c --color=always --files-with-matches a \"$X\"); echo $((n))",
            "n=$(grep -cl a \"$X\"); echo $((n))",
            "n=$(grep -c --label=\"$X\" -H a -); echo $((n))",
            "n=$(tr -cd 0-9 <<< \"$X\"; echo \"$X\"); echo $((n))",
            "n=$(wc -c --files0-from=\"$X\"); echo $((n))",
            "n=$(grep -c --recursive a \"$X\"); echo $((n))",
            "n=$(grep -c --directories=recurse a \"$X\"); echo $((n))",
            "n=$(grep -cd recurse \"$X\" -e a); echo $((n))",
            "n=$(grep -c -e a -e b -- \"$X\"/*); echo $((n))",
            "n=$(grep -c a \"$X\"/*); echo $((n))",
            "n=$(grep -cex f \"$X\"); echo $((n))",
            "n=$(grep -cex \"$X\" f); echo $((n))",
            "n=$(grep -cee \"$X\" f); echo $((n))",
            "CMD=\"bash -c\"; $CMD \"$X\"",
            "T=\"timeout 5\"; $T bash -c \"$X\"",
            "SUDO=\"\"; $SUDO bash -c \"$X\"",
            "S=; $S eval \"$X\"",
            "P=\"python3 -c\"; $P \"$X\"",
            "O=\"-maxdepth 1 -exec bash -c\"; find . $O \"$X\" \\;",
            "f=\"-f -\"; awk $f <<< \"$X\"",
            "G=\"git -C .\"; $G -c alias.z=\"!$X\" z",
            "c='/bin/ba?h'; $c -c \"$X\"",
            "c=echo; y=$(c=eval; $c \"$X\")",
            "env - bash -c \"$X\"",
            "env -u A - bash -c \"$X\"",
            "eval -- 'eval \"$X\"'",
            ". -- \"$X\"",
            "source -- <(echo \"$X\")",
            "echo \"$X\" > f; . -- ./f",
            "time -- bash -c \"$X\"",
            "time -p -- eval \"$X\"",
            "time\t-p\teval \"$X\"",
            "env -vS 'bash -c ${X}'",
            "bash -oc pipefail 'eval \"$X\"'",
            "wait -np \"$X\"",
            "wait -fnp \"a[$X]\"",
            "printf '%s\\0' \"$X\" | xargs -0I{} sh -c 'echo {}'",
            "echo \"$X\" | xargs -rI{} sh -c 'echo {}'",
            "echo \"$X\" | xargs -tI% sh -c 'echo %'",
            "echo \"$X\" | xargs -0i sh -c 'echo {}'",
            "echo \"$X\" | xargs find .",
            "echo \"$X\" | xargs sed -i s/a/b/",
            "sed 's/a/b/' \"$X\" f",
            "sed -e 's/a/b/' \"$X\" f",
            "sed -i -e 's/a/b/' \"$X\" f",
            "read -ra a <<< \"$X\"; find . \"${a[@]}\"",
            "a=(\"$X\" \"$X\"); find . \"${a[@]}\"",
            "f() { find . \"$@\"; }; f \"$X\" \"$X\"",
            "mapfile -t a <<< \"$X\"; [ \"${a[@]}\" ]",
            "read -ra a <<< \"$X\"; [ -n \"${a[@]}\" ]",
            "f() { [ \"$@\" ]; }; f \"$X\" \"$X\"",
            "set -- \"$X\" \"$X\"; test \"$@\"",
            "find . \"$X\" \"$X\" \"$X\" \\;",
            "find \"$X\" -exec sh -c 'ls {}' \\;",
            "touch -- \"$X\"; find . -type f -exec sh -c 'wc -l {}' \\;",
            "find \"$X\" -name '*.sh' -exec bash {} \\;",
            "find \"$X\" -type f -exec {} \\;",
            "echo \"$X\" > a.sh; find . -name a.sh -exec {} \\;",
            "find . {-exec,bash,-c} \"$X\" \\;",
            "f() { local -A m; m[a]=1; }; m[$X]=1",
            "m=(1); declare -A m; echo \"${m[$X]}\"",
            "declare -A m; bash -c 'echo \"${m[$0]}\"' \"$X\"",
            "(declare -A m); m[$X]=1",
            "declare -A m; unset m; m[$X]=1",
            "if [ -e /none ]; then declare -A m; fi; m[$X]=1",
            "x=$(declare -A m); m[$X]=1",
            "echo \"$X\" > 1; bash 1",
            "curl -s -o f -- \"$X\"; bash f",
            "sort -of <<< \"$X\"; bash f",
            "sort --output=f <<< \"$X\"; bash f",
            "sed -n 'w f' <<< \"$X\"; bash f",
            "awk '{print > \"f\"}' <<< \"$X\"; bash f",
            "echo \"$X\" > f; bash --rcfile f -ic :",
            "echo \"$X\" > f; BASH_ENV=f bash -c :",
            "echo \"$X\" > f; export BASH_ENV=./f; bash -c :",
            "PS4='$((X))'; set -x; :",
            "BASH_ENV='$(eval \"$X\")' bash -c :",
            "PROMPT_COMMAND='eval \"$X\"' bash -i",
            "p='$((X))'; echo \"${p@P}\"",
            "jobs -x sh -c 'eval \"$X\"'",
            "git -c core.fsmonitor='eval \"$X\"' status",
            "git -c core.sshCommand='eval \"$X\"' fetch",
            "split --filt='eval \"$X\"' f",
            "tar --checkpoint-act=exec='eval \"$X\"' -cf a d",
            "strace -fo '|eval \"$X\"' true",
            "watch -n 1 'eval \"$X\"'",
            "zip -T -TT 'eval \"$X\"' a b",
            "dpkg --pre-invoke='eval \"$X\"' -i a",
            "make -f - <<< 'a:; @echo $(X)'",
            "npx -c 'eval \"$X\"'",
            "mapfile -C eval -c 1 a <<< \"$X\"",
            "mapfile -t -C let -c 1 a <<< \"$X\"",
            "mapfile -t -C declare a <<< \"$X\"",
            "wget \"$X\" url",
            "zip -qT a.zip \"$X\" f",
            "script -q \"$X\"",
            "gdb \"$X\"",
            "prove \"$X\" t.t",
            "perf stat \"$X\"",
            "valgrind \"$X\"",
            "dbus-run-session -- \"$X\"",
            "start-stop-daemon -S -x \"$X\"",
            "python3 -m timeit \"$X\"",
            "python3 -m code <<< \"$X\"",
            "python3 -m pdb \"$X\"",
            "npx -c \"$X\"",
            "apt-get install -y \"$X\"",
            "dpkg -i \"$X\"",
            "pip install \"$X\"",
            "npm install \"$X\"",
            "gcc-12 -wrapper \"$X\" a.c",
            "gcc-12 \"$X\" a.c",
            "x86_64-linux-gnu-gcc-12 \"$X\" a.c",
            "perl5.36-x86_64-linux-gnu -e \"$X\"",
            "git fetch-pack \"$X\" .",
            "git \"$X\" foo",
            "tar -czf a.tar -I \"/bin/x $X\" d",
            "mkdir -p -- \"$X\"; cd -- \"$X\"; n=$(basename \"$(realpath .)\"); echo $((n))",
            "touch -- \"$X\"; n=$(du -a . | head -1 | cut -f2); echo $((n))",
            "touch -- \"$X\"; n=$(git ls-files -o); echo $((n))",
            "truncate -s 0 -- \"$X\"; n=$(ls); echo $((n))",
            "cat <<'EOF'\r\nhi\r\nEOF\r\neval \"$X\"\r\n",
            "cat <<E\na\\\nE\nit's\nE\neval \"$X\" # it's",
            "declare {-i,n}; n=\"$X\"",
            "$'\\x{65}val' \"$X\"",
            "coproc C [[ \"$X\" -gt 1 ]]",
            "history -s \"$X\"",
            "n=$(stat -c %s \"$X\" f); echo $((n))",
            "n=$(stat -c \"$X\" f); echo $((n))",
            "n=$(stat -c %s%n -- \"$X\"); echo $((n))",
            "n=$(date -d \"$X\" +%s%Z); echo $((n))",
            "n=$(date \"$X\"); echo $((n))",
            "n=$(date -d now +%s \"$X\"); echo $((n))",
            "n=$(du -s \"$X\" | cut -f 1); echo $((n))",
            "su root -c \"$X\"",
            "su -c 'eval \"$X\"' root",
            "sg root -c \"$X\"",
            "runuser -u me -- bash -c \"$X\"",
            "ls >& \"$X\"",
            "ls 2>& \"$X\"",
            "RANDOM=\"$X\"",
            "declare -i n; n=X",
            "n=X; echo $((n))",
            "x=(X); echo $((x[0]))",
            "echo X | { read -r v; echo $((v)); }",
            "set -- X; echo $(($1))",
            "f() { echo $(($1)); }; f X",
            "v=\"a[X]\"; test -v \"$v\"",
            "unset 'a[X]'",
            "local -n p=PATH; p=\"$X\"",
            "typeset -n r; r=\"$X\"",
            "declare $o p=PATH; p=\"$X\"",
            "echo \"${!1}\"",
            "echo \"${!X@}\" | { read -r v; echo $((v)); }",
            "command_not_found_handle() { :; }",
            "eval \"$(printenv)\"",
            "eval \"$(cat script)\"",
            "bash -c \"$(cat script)\"",
            ". <(set)",
            "declare -p | bash",
            "bash -c \"$(jq -n env.X)\"",
            "eval \"$(envsubst < f)\"",
            "coproc bash",
            "coproc { bash; }",
            "exec 5<<< \"$X\"; read -r -u 5 v; eval \"$v\"",
            "tee >(bash) <<< \"$X\"",
            "echo \"$X\" > \"$f\"; bash \"$g\"",
            "echo \"$X\" > \"$f\"; bash script.sh",
            "echo \"$X\" | sort -o f; bash f",
            "tee d/f <<< \"$X\"; (cd d; ./f)",
            "bash() { :; }; bash -c \"$X\"",
            "ev?l \"$X\"",
            "[e]val \"$X\"",
            "sudo /bin/ba*h -c \"$X\"",
            "$'ev\\x61l' \"$X\"",
            "$'\\u0065val' \"$X\"",
            "$'\\145val' \"$X\"",
            "$'eval\\0x' \"$X\"",
            "xargs -n 1 \"$X\" < f",
            "xargs -I% sh -c 'echo %' <<< \"$X\"",
            "xargs -i \"$X\" {} < f",
            "sed -i \"$X\" f",
            "sed e <<< \"$X\"",
            "sed -e e <<< \"$X\"",
            "sed -ns/a/b/ -es/a/b/e <<< \"$X\"",
            "sed --expression='s/a/b/e' <<< \"$X\"",
            "sed -n 's/a/b/e' <<< \"$X\"",
            "echo \"$X\" > f; sed 1e f",
            "echo \"$X\" | awk '{ system($0) }'",
            "awk -v v=\"$X\" 'BEGIN { system(v) }'",
            "awk '{ print | \"sh\" }' <<< \"$X\"",
            "printf '%s' \"$X\" | awk '{ (\"echo \" $1) | getline x }'",
            "unshare -r \"$X\"",
            "unshare -w d bash -c \"$X\"",
            "perl -lne \"$X\"",
            "perl -0777 -pe \"$X\" f",
            "nsenter -w \"$X\"",
            "perl -i -pe 's/a/b/' \"$X\"",
            "perl -0 -e \"$X\"",
            "git -C \"$X\" fetch",
            "make -C \"$X\"",
            "man -P \"$X\" ls",
            "rsync -n \"$X\" b",
            "ssh -o -i \"$X\" uptime",
            "timeout \"$X\" ls",
            "flock \"$X\" ls",
            "chroot \"/srv/$X\" ls",
            "xargs -a list sh -c 'eval \"$0\"'; echo \"$X\" > list",
            "env --split-string=\"bash -c $X\"",
            "env -S 'bash -c \"eval \\\"$X\\\"\"'",
            "env -Z bash \"$X\"",
            "bash -k -c 'sh -c :' \"$X\"",
            "bash --rcfile \"$X\" -i -c :",
            "alias e=eval; e \"$X\"",
            "BASH_ALIASES[e]=eval; e \"$X\"",
            "BASH_CMDS[foo]=/bin/bash; foo -c \"$X\"",
            "hash -p /bin/bash foo; foo -c \"$X\"",
            "set -o keyword; sh -c : A=\"$X\"",
            "tar -cf a.tar -I \"$X\" d",
            "tar -cf a.tar \"-I$X\" d",
            "rsync -e \"ssh $X\" a b",
            "rsync --rsh=\"$X\" a b",
            "git -c core.pager=\"$X\" log",
            "git config core.fsmonitor \"$X\"",
            "git --exec-path=\"$X\" status",
            "ssh -oProxyCommand=\"$X\" host",
            "ssh -F \"$X\" host",
            "scp -S \"$X\" a b:",
            "make \"V=$X\"",
            "make --eval=\"$X\"",
            "sed p -f \"$X\"",
            "gcc \"-fplugin=$X\" f.c",
            "strace -o \"|$X\" true",
            "watch 'eval \"$X\"'",
            "vim +\"$X\"",
            "nohup \"$X\"",
            "stdbuf -oL \"$X\"",
            "chroot d \"$X\"",
            "nsenter -t 1 \"$X\"",
            "time -p bash -c \"$X\"",
            "busybox sh -c \"$X\"",
            "cat s.sh | bash",
            "bash -s < <(cat s.sh)",
            "bash <(printf '%s\\n' 'eval \"$X\"')",
            "cat > s <<E\neval \"\\$X\"\nE\nsh ./s",
        ] {
            if dangers(command, false).is_empty() {
                missed.push(command);
            }
        }
        for command in [
            "cat > 1; bash 1",
            "bash /proc/$$/fd/0",
            ". /proc/$$/fd/0",
            "bash /dev/./stdin",
            "bash /proc/thread-self/fd/0",
            "find . -maxdepth 0 -exec bash \\;",
            "env - bash",
            "git -c alias.z='!bash' z",
            "sed -f - f",
            "awk -f -",
            "awk --file=/dev/stdin",
            "make -f -",
            "make -f- all",
            "ed -s",
            "ex -s",
            "unshare",
            "linux64",
            "setarch -R",
            "nsenter -t 1",
            "ssh-agent sh",
            "sudo -s",
            "chroot d",
            "coproc bash; cat >&\"${COPROC[1]}\"",
        ] {
            if dangers(command, true).is_empty() {
                missed.push(command);
            }
        }
        assert_eq!(missed, Vec::<&str>::new());
    }

    #[test]
    fn a_danger_has_the_place_of_the_value() {
        for (command, shown) in [
            ("echo a $X", "$X"),
            ("echo \"a\" \"$((X + 1))\"", "X"),
            ("ls; eval \"$X\"", "eval"),
            ("awk \"$X\" f", "\"$X\""),
            ("echo ü; echo ${X}", "${X}"),
        ] {
            let found = dangers(command, false);
            assert_eq!(&command[found[0].range.clone()], shown, "{command}");
        }
    }

    #[test]
    fn arguments_are_code_only_where_the_program_reads_them_so() {
        let find = |words: &[&str]| {
            let arguments: Vec<ProgramArgument<'_>> = words
                .iter()
                .map(|word| match word.strip_suffix('$') {
                    Some(text) => ProgramArgument { text, is_foreign: true },
                    None => ProgramArgument { text: word, is_foreign: false },
                })
                .collect();
            scan_program(&arguments, &Foreign::default())
        };
        for words in [
            &["echo", "$"][..],
            &["bash", "-c", "echo \"$1\"", "_", "$"],
            &["/usr/bin/grep", "-e", "$", "--", "$"],
            &["git", "clone", "--", "$", "x"],
            &["git", "clone", "--branch=$", "--", "url"],
            &["python3", "script.py", "$"],
            &["find", "$", "-type", "f"],
        ] {
            assert_eq!(find(words), [], "{words:?}");
        }
        for words in [
            &["$"][..],
            &["/opt/$"],
            &["bash", "-c", "$"],
            &["bash", "-c", "echo $1", "_", "$"],
            &["bash", "$"],
            &["python3", "-c", "$"],
            &["env", "bash", "-c", "$"],
            &["env", "$", "ls"],
            &["env", "LD_PRELOAD=$", "ls"],
            &["ssh", "host", "$"],
            &["tar", "-xf", "$"],
            &["git", "clone", "$"],
            &["sed", "$", "f"],
        ] {
            assert!(!find(words).is_empty(), "{words:?}");
        }
    }

    #[test]
    fn no_text_makes_the_reader_panic() {
        const PIECES: [&str; 48] = [
            "$", "{", "}", "(", ")", "((", "))", "[[", "]]", "\"", "'", "`", "\\", "\n", " ", ";", "&", "|", "<", ">",
            "<<", "<<<", "<(", "#", "!", "@", "*", "X", "x=", "a[", "]", "=", "if", "then", "fi", "for", "do", "done",
            "case", "in", "esac", ";;", "ü", "${", "${X@", "${X:", "$'", "E",
        ];
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text.push_str(PIECES[usize::try_from(seed >> 40).unwrap() % PIECES.len()]);
            }
            dangers(&text, true);
        }
    }

    #[test]
    fn deep_and_odd_texts_come_to_an_end() {
        for text in [
            "(",
            "$(",
            "${",
            "`",
            "\"",
            "'",
            "[[ ",
            "((",
            "a=(",
            "<<",
            "{ ",
            "if ",
            "case x in ",
            "$((",
            "f() ",
            "!",
            "|",
            "<(",
            "${x:-",
        ] {
            let deep = text.repeat(3000);
            dangers(&deep, true);
            dangers(&format!("echo \"$X\"; {text}"), true);
        }
    }
}
