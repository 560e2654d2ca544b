//! Each construct of the shell's grammar, repeated and nested: reading it costs time that grows with its length.

use super::*;

/// Constructs that follow each other; `%` is the number of each of them, and `^` a number that counts down.
const REPEATED: [&str; 98] = [
    "echo \"$X\"; ",
    "echo \"$X\"\n",
    "echo \"$X\" && ",
    "cat | ",
    "cat |\n",
    "cat <<E |\n$X\nE\n",
    "cat <<E\n$X\nE\n",
    "cat <<'E'\n$X\nE\n",
    "cat <<E; ",
    "cat <<< \"$X\"; ",
    "V%=\"$X\"; ",
    "V%=$(cat <<< \"$X\"); ",
    "A^=$A%; ",
    "A%=$B%; B%=$A^; A^=$X; ",
    "V%=text; echo $V%; ",
    "V=%; ",
    "declare -A M%; M%[\"$X\"]=1; ",
    "(declare -A M%); ",
    "declare -i V%; ",
    "declare V%=\"$X\"; ",
    "export V%=\"$X\"; ",
    "local -n V%=a; ",
    "read -r V% <<< \"$X\"; ",
    "mapfile -t V% < f; ",
    "getopts a:b V%; ",
    "printf -v V% %s \"$X\"; ",
    "f%() { echo \"$1\"; }; f% \"$X\"; ",
    "function f% { echo a; }; ",
    "f% \"$X\"; ",
    "echo \"$X\" > f%; ",
    "echo \"$X\" > f%; cat g%; ",
    "echo 'echo a' > f%.sh; bash f%.sh; ",
    "echo 'echo a' > f%.sh; bash \"$1\"; ",
    "echo \"$X\" | tee f%; ",
    "cp f% g%; cat g%; ",
    "exec 3< f%; ",
    "cat <&3 2>&1; ",
    "trap 'echo $X' EXIT; ",
    "eval 'echo a'; ",
    "eval echo a b; ",
    "bash -c 'echo \"$1\"' _ \"$X\"; ",
    "bash <<< 'echo \"$X\"'; ",
    "bash <(echo a); ",
    "source f%; ",
    "alias a%=b; ",
    "let V%=1; ",
    "unset V%; ",
    "set -- \"$X\"; ",
    "[ -v V% ]; ",
    "[ \"$X\" = a -a b = \"$X\" ]; ",
    "[[ $X == a* || -z $X ]]; ",
    "[[ $X =~ ^(a|b)$ ]]; ",
    "[[ V% -gt 1 ]]; ",
    "((V% > 1)); ",
    "((a; ",
    "echo $((V% + 1)); ",
    "echo $((a); ",
    "echo $[V% + 1]; ",
    "a[b c",
    "a[b ",
    "a=([ b ",
    "a[%]=1; ",
    "a=(b \"$X\" [%]=c); ",
    "echo \"${V%:-none} ${X%/*} ${X//a/b} ${#X} ${X^^}\"; ",
    "echo \"${!X}\" \"${X@P}\" \"${!V%*}\"; ",
    "echo \"${a[%]}\" \"${a[@]}\"; ",
    "for v% in a b; do echo \"$X\"; done; ",
    "for ((i = 0; i < 3; i++)); do :; done; ",
    "while read -r l; do echo \"$l\"; done < f; ",
    "if true; then echo \"$X\"; elif false; then :; else :; fi; ",
    "case \"$X\" in a|b) echo a;; *) :;; esac; ",
    "{ echo \"$X\"; } > f%; ",
    "(cd \"$X\" && ls); ",
    "coproc cat; ",
    "coproc cat\n",
    "coproc N { cat; }; ",
    "! time -p ls; ",
    "# a comment\n",
    "echo a \\\n b; ",
    "echo {a,b} ~ *.txt ?(x) @(a|b) \"$X\"; ",
    "echo $'a\\tb\\x41' \"$X\"; ",
    "echo `basename \"$X\"`; ",
    "n=$(stat -c %s -- \"$X\"); echo $((n)); ",
    "awk -v x=\"$X\" '{ print x }' file; ",
    "sed -e 's/a/b/' -- \"$X\"; ",
    "jq --arg k \"$X\" '.[$k]' f; ",
    "git -c user.name=a commit -m \"$X\"; ",
    "tar -xf a.tar -- \"$X\"; ",
    "ssh host uptime; ",
    "find . -name \"$X\" -exec grep a {} + -exec sh -c 'echo \"$1\"' _ {} \\;; ",
    "xargs -I{} cp {} \"$X\" < list; ",
    "sudo -u me env A=b nice -n 5 sort -- \"$X\"; ",
    "docker exec box sh -c 'echo a'; ",
    "parallel echo ::: a; ",
    "watch 'ls a'; ",
    "python3 -c 'print(1)' \"$X\"; ",
    "sqlite3 db \"select 1\" \"$X\"; ",
    "V%=/tmp/a; PATH=$V% ls; ",
];

/// Words that follow each other in one command, with the text before them.
const ARGUMENTS: [(&str, &str); 34] = [
    ("echo ", "\"$X\" "),
    ("echo ", "$X "),
    ("echo ", "a "),
    ("echo ", "$(cat \"$X\") "),
    ("echo ", "\"$(cat \"$X\")\" "),
    ("cat ", "<(cat \"$X\") "),
    ("unknown ", "\"$(echo \"$(cat \"$X\")\")\" "),
    ("", "V%=\"$X\" "),
    ("", "> f% "),
    ("f() { :; }; f ", "\"$X\" "),
    ("eval ", "\"$X\" "),
    ("eval ", "a "),
    ("bash -c 'echo \"$1\"' _ ", "\"$X\" "),
    ("bash -c ", "a "),
    ("env ", "V%=\"$X\" "),
    ("sudo -X ", "bash "),
    ("sudo -X ", "ls "),
    ("xargs -X ", "sh "),
    ("docker ", "sh "),
    ("docker ", "ssh "),
    ("find . ", "-name \"$X\" "),
    ("find . ", "-exec grep \"$X\" {} \\; "),
    ("git ", "-c a=!b "),
    ("ssh host ", "\"$X\" "),
    ("tar ", "-f \"$X\" "),
    ("sed ", "-e s/a/b/ "),
    ("printf %s ", "\"$X\" "),
    ("read ", "V% "),
    ("declare ", "V%=\"$X\" "),
    ("[ ", "\"$X\" -a "),
    ("[[ a", " && $X == b"),
    ("cp ", "f% "),
    ("unknown ", "'echo $X' "),
    ("case a in ", "a%) echo \"$X\";; "),
];

/// The text around a command that is nested in itself.
const NESTED: [(&str, &str); 44] = [
    ("echo $(", ")"),
    ("echo \"$(", ")\""),
    ("echo $( (", ") )"),
    ("cat <(", ")"),
    ("tee >(", ")"),
    ("V=$(", ")"),
    ("V=\"$(", ")\""),
    ("export V=$(", ")"),
    ("a=($(", "))"),
    ("a[$(", ")]=1"),
    ("echo ${a[$(", ")]}"),
    ("echo ${a:-$(", ")}"),
    ("echo ${a:-${a:-", "}}"),
    ("echo $(($(", ")))"),
    ("cat <<< $(", ")"),
    ("cat < $(", ")"),
    ("[[ $(", ") == a ]]"),
    ("[ $(", ") = a ]"),
    ("case $(", ") in a) :;; esac"),
    ("for i in $(", "); do :; done"),
    ("bash $(", ")"),
    ("bash <(", ")"),
    ("bash -c $(", ")"),
    ("sudo -X $(", ")"),
    ("find . -exec $(", ") \\;"),
    ("git -c $(", ")"),
    ("f() { echo $(", "); }"),
    ("(", ")"),
    ("{ ", "; }"),
    ("if ", "; then :; fi"),
    ("while ", "; do :; done"),
    ("for i in a; do ", "; done"),
    ("case a in a) ", ";; esac"),
    ("f() { ", "; }"),
    ("coproc { ", "; }"),
    ("((", "))"),
    ("echo $((", "))"),
    ("nice ", ""),
    ("sudo -u me ", ""),
    ("sudo -X ", ""),
    ("env -X timeout 5 ", ""),
    ("xargs ", ""),
    ("find . -exec ", ""),
    ("docker run ssh -X sudo -X ", ""),
];

fn repeated(before: &str, piece: &str, size: usize) -> String {
    let mut text = before.to_owned();
    let most = size / piece.len();
    for number in 0..most {
        text.push_str(&piece.replace('%', &number.to_string()).replace('^', &(most - number).to_string()));
    }
    text
}

fn nested(before: &str, behind: &str, depth: usize) -> String {
    format!("{}echo \"$X\"{}", before.repeat(depth), behind.repeat(depth))
}

/// Returns the time for which this thread has used a processor.
#[cfg(target_os = "linux")]
fn processor_time() -> std::time::Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    std::time::Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

/// Returns the steps that a command costs, or none if it is given up.
fn steps(text: &str) -> Option<usize> {
    let foreign = Foreign { variables: vec!["X".to_owned()], stdin: true };
    expanded(text);
    let (dangers, steps) = follow::command(text, &foreign);
    let is_given_up = matches!(dangers.as_slice(), [Danger { how: How::Unreadable, .. }]);
    (!is_given_up).then_some(steps)
}

/// Makes a command of about this many bytes.
type MakeCommand = Box<dyn Fn(usize) -> String>;

fn constructs() -> Vec<(String, MakeCommand)> {
    let mut all: Vec<(String, MakeCommand)> = Vec::new();
    for piece in REPEATED {
        all.push((piece.to_owned(), Box::new(move |size| repeated("", piece, size))));
    }
    for (before, piece) in ARGUMENTS {
        all.push((format!("{before}{piece}"), Box::new(move |size| repeated(before, piece, size))));
    }
    for (before, behind) in NESTED {
        let made = move |size| nested(before, behind, size / (before.len() + behind.len()));
        all.push((format!("{before}…{behind}"), Box::new(made)));
        // Where the reader gives up the whole at once, as many levels as it reads follow each other.
        let made = move |size| {
            let deep = nested(before, behind, 12);
            repeated("", &format!("{deep}\n"), size)
        };
        all.push((format!("12 times {before}…{behind}"), Box::new(made)));
    }
    all
}

/// A command that is twice as long costs at most 2.3 times the steps, or is given up.
#[test]
fn the_steps_of_each_construct_grow_with_its_length() {
    let mut wrong = Vec::new();
    for (name, made) in constructs() {
        let [once, twice] = [1_500, 3_000].map(|size| steps(&made(size)));
        if let (Some(once), Some(twice)) = (once, twice)
            && twice > 50 + once * 23 / 10
        {
            wrong.push(format!("{name:?}: {once} and {twice} steps"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// Nested substitutions cost as much as their levels, however they are quoted: each of them is followed once.
#[test]
fn nested_substitutions_cost_what_their_levels_cost() {
    for (before, behind) in
        [("echo $(", ")"), ("echo \"$(", ")\""), ("cat <(", ")"), ("V=$(", ")"), ("bash -c $(", ")")]
    {
        let [half, whole] = [9, 18].map(|depth| steps(&nested(before, behind, depth)).unwrap());
        assert!(whole <= half * 23 / 10, "{before}: {half} and {whole} steps");
        let danger =
            !scan(&nested(before, behind, 18), &Foreign { variables: vec!["X".to_owned()], stdin: false }).is_empty();
        assert_eq!(danger, before.contains("$(") && !before.contains(['"', 'V']), "{before}");
    }
}

/// No command of 64 KB costs more than a second of a processor when it is optimised. `GROWTH` is the number of bytes, 8,192 if not
/// set: a build for tests is slower.
#[cfg(target_os = "linux")]
#[test]
fn no_construct_takes_long() {
    let size: usize = std::env::var("GROWTH").map_or(8_192, |text| text.parse().unwrap());
    let mut slowest = (std::time::Duration::ZERO, String::new());
    for (name, made) in constructs() {
        let text = made(size);
        let begin = processor_time();
        steps(&text);
        slowest = slowest.max((processor_time() - begin, name));
    }
    println!("{slowest:?}");
    let most = std::time::Duration::from_secs(if cfg!(debug_assertions) { 5 } else { 1 });
    assert!(slowest.0 <= most, "{slowest:?}");
}
