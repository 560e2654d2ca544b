//! `graph new`, `graph sign --changed`, `graph expand`, `graph completions` and `graph man`.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::place::{Place, Ran};

impl Place {
    fn git(&self, arguments: &[&str]) {
        let mut git = Command::new("git");
        git.args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"]).args(arguments);
        let output = git.current_dir(self.root()).env("HOME", self.root()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// A crate that `graph new crate` made.
struct Crate {
    place: Place,
}

impl Crate {
    fn new() -> Self {
        let place = Place::new();
        let ran = place.graph(&["new", "crate", "hello", "--from", repository().to_str().unwrap()]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""));
        assert!(ran.out.contains("made the key ") && ran.out.contains("`cd hello && cargo run`"), "{}", ran.out);
        // The versions that the repository is tested with.
        fs::copy(repository().join("Cargo.lock"), place.path("hello/Cargo.lock")).unwrap();
        Self { place }
    }

    /// Runs cargo, and returns whether it succeeded, what it wrote to stdout, and to stderr.
    fn cargo(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(env!("CARGO"));
        command.args(arguments).args(["--offline", "--quiet"]).current_dir(self.place.path("hello"));
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("tests/native");
        let output = command.env("CARGO_TARGET_DIR", target).env_remove("RUSTFLAGS").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    }

    fn graph(&self, arguments: &[&str]) -> Ran {
        self.place.ran(self.place.command(arguments).current_dir(self.place.path("hello")).output().unwrap())
    }

    /// Replaces a part of a file, which must be there.
    fn edit(&self, file: &str, part: &str, replacement: &str) {
        let file = format!("hello/{file}");
        let text = self.place.read(&file);
        assert!(text.contains(part), "{file} has no {part}:\n{text}");
        self.place.write(&file, &text.replacen(part, replacement, 1));
    }
}

#[test]
fn a_new_crate_compiles_runs_and_passes_its_test_and_so_does_a_second_of_everything() {
    let hello = Crate::new();
    assert_eq!(hello.cargo(&["run"]), (true, "Hello, Ann!\n".to_owned(), String::new()));
    let (passed, out, err) = hello.cargo(&["test"]);
    assert!(passed && out.contains("1 passed"), "{out}{err}");
    let ran = hello.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 1 graph: no errors\n"), "{}", ran.err);
    let ran = hello.graph(&["coverage", "--fail-under", "100"]);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    // Cargo names each library that it compiled, or that was compiled before.
    let (built, libraries, _) = hello.cargo(&["build", "--message-format", "json"]);
    assert!(built && libraries.lines().count() > 50, "{libraries}");
    let mut seen = BTreeSet::new();
    for message in libraries.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()) {
        if message["reason"] == "compiler-artifact" && message["target"]["kind"][0] == "lib" {
            assert!(
                seen.insert(message["package_id"].to_string()),
                "it is built twice, for host and target: {message}"
            );
        }
    }

    // A second tool, which the graph calls and is granted by the same line of the program.
    let contract = hello.place.read("hello/graphs/tools/desk/greet.yaml");
    hello.place.write("hello/graphs/tools/desk/log.yaml", contract.split_once('\n').unwrap().1);
    hello.edit("graphs/greet.yaml", "tool.desk.greet]", "tool.desk.greet, rye.execute.tool.desk.log]");
    let log = "next: log\n    log:\n      action: { item_id: desk/log, params: { name: \"${state.text}\" } }\n      next: done\n";
    hello.edit("graphs/greet.yaml", "next: done\n", log);
    let second = "
impl desk_log::Tool for Desk {
    async fn desk_log(&self, _: &Call, params: desk_log::Params) -> Result<desk_log::Output, ActionError> {
        Ok(desk_log::Output { text: params.name })
    }
}

#[tokio::main]";
    hello.edit("src/main.rs", "use tools::desk_greet;\n", "use tools::{desk_greet, desk_log};\n");
    // A second graph, which waits. It has the tool of the first one.
    hello.place.write("hello/graphs/nap.yaml", NAP);
    hello.edit(
        "src/main.rs",
        "    Ok(())\n}\n",
        "    runtime.start(Nap::new(Desk), nap::Inputs { name: \"Ann\".into() }).await?.await?;\n    Ok(())\n}\n",
    );
    hello.edit("src/main.rs", "\n#[tokio::main]", second);
    // A second test, in a directory of its own.
    hello.place.write("hello/tests/nap.rs", NAP_TEST);
    let ran = hello.graph(&["sign", "--changed", "--yes"]);
    assert!(ran.code == 0 && ran.out.contains("graphs/nap.yaml"), "{}{}", ran.out, ran.err);
    let (ended_well, out, err) = hello.cargo(&["run"]);
    let needed = "Error: the graph `nap` can wait, which needs a store that keeps its runs until then: name one with `Builder::store`";
    assert_eq!((ended_well, out.as_str()), (false, "Hello, Ann!\n"), "{err}");
    assert!(err.contains(needed), "{err}");
    hello.edit("src/main.rs", "use graph_runtime::{", "use graph_runtime::{MemoryStore, SecretKey, ");
    hello.edit(
        "src/main.rs",
        "Runtime::builder()",
        "Runtime::builder().store(MemoryStore::new()).sign_with(SecretKey::generate()?)",
    );
    let (_, out, err) = hello.cargo(&["run"]);
    assert!(out == "Hello, Ann!\n" && err.starts_with("Error: the run waits at `nap`, until 20"), "{out}{err}");
    let (passed, out, err) = hello.cargo(&["test", "--test", "nap"]);
    assert!(passed && out.contains("1 passed"), "{out}{err}");
}

const NAP: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.desk.greet]
config_schema: { type: object, properties: { name: { type: string } }, required: [name] }
config:
  start: nap
  nodes:
    nap: { type: wait, timeout: 100ms, next: greet }
    greet: { action: { item_id: desk/greet, params: { name: \"${inputs.name}\" } }, next: done }
    done: { type: return }
";

const NAP_TEST: &str = "use graph_runtime::testing::{FakeScript, Fakes, TestBed, graph_test};

graph_runtime::include_graphs!();

#[graph_test]
async fn it_sleeps(bed: TestBed) {
    let greeting = tools::desk_greet::Output { text: \"Hello!\".into() };
    let desk = Fakes::new().on(tools::desk_greet::FAKE, FakeScript::returns(greeting));
    let run = bed.run(Nap::new(desk), nap::Inputs { name: \"Bo\".into() }).await;
    run.assert_path([nap::Node::Nap, nap::Node::Greet, nap::Node::Done]);
}
";

#[test]
fn a_new_crate_takes_the_key_that_is_there() {
    let place = Place::with_key();
    let ran = place.graph(&["new", "crate", "inside/hello-2", "--from", repository().to_str().unwrap()]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(ran.out, "made the package hello-2 in inside/hello-2: `cd inside/hello-2 && cargo run`\n");
    let graph = place.read("inside/hello-2/graphs/greet.yaml");
    assert!(graph.lines().next().unwrap().ends_with(&place.fingerprint()), "{graph}");
    assert!(fs::read_dir(place.path("inside")).unwrap().count() == 1, "nothing else is left");
}

#[cfg(unix)]
#[test]
fn a_new_crate_is_a_repository_where_it_is_in_none_and_a_workspace_where_it_is_in_one() {
    // The working directory, the crate, and whether that is in a repository and in a workspace.
    for (from, made, in_repository, in_workspace) in [
        ("", "hello", false, false),
        ("", "deep/er/hello", false, false),
        ("both", "../hello", false, false),
        ("both", "../both/../hello", false, false),
        ("both", "ROOT/hello", false, false),
        ("both", "hello", true, true),
        ("both", "deep/hello", true, true),
        ("both", "sub/../hello", true, true),
        ("", "link/hello", true, true),
        ("both", "../workspace/hello", false, true),
        ("workspace", "../repository/hello", true, false),
        ("workspace", "out/hello", false, false),
    ] {
        let place = Place::with_key();
        place.write("both/sub/file", "");
        place.write("outside/file", "");
        place.write("repository/file", "");
        for workspace in ["both", "workspace"] {
            place.write(&format!("{workspace}/Cargo.toml"), "[workspace]\nmembers = []\n");
        }
        for repository in ["both", "repository"] {
            place.git(&["init", "--quiet", repository]);
        }
        std::os::unix::fs::symlink("both", place.path("link")).unwrap();
        std::os::unix::fs::symlink("../outside", place.path("workspace/out")).unwrap();
        let made = made.replace("ROOT", place.root().to_str().unwrap());
        let mut command = place.command(&["new", "crate", &made, "--from", repository().to_str().unwrap()]);
        let ran = place.ran(command.current_dir(place.path(from)).output().unwrap());
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{from}: {made}");
        let directory = place.path(from).join(&made);
        assert_eq!(directory.join(".git").exists(), !in_repository, "{from}: {made}");
        let manifest = fs::read_to_string(directory.join("Cargo.toml")).unwrap();
        assert_eq!(manifest.ends_with("[workspace]\n"), in_workspace, "{from}: {made}: {manifest}");
    }
}

#[test]
fn a_crate_that_cannot_be_made_leaves_nothing() {
    let place = Place::with_key();
    place.write("taken", "a file");
    for (name, message) in [
        ("taken", "error: taken exists already\n"),
        ("fn", "error: `fn` cannot name a package"),
        ("1st", "error: `1st` cannot name a package"),
        ("taken/hello", "error: cannot make HOME/taken"),
        ("missing/../hello", "error: missing/../hello: `..` follows a directory that does not exist\n"),
    ] {
        let ran = place.graph(&["new", "crate", name, "--from", repository().to_str().unwrap()]);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""), "{name}");
        assert!(ran.err.starts_with(message), "{name}: {}", ran.err);
    }
    let ran = place.graph(&["new", "crate", "hello", "--from", "graphs"]);
    assert_eq!(
        (ran.code, ran.err.as_str()),
        (3, "error: HOME/graphs holds no package graph-runtime\n"),
        "a directory that is no copy of the repository"
    );
    assert!(!place.path("hello").exists() && !place.path("fn").exists());
}

#[cfg(unix)]
#[test]
fn a_new_graph_and_contract_have_no_mistakes() {
    let place = Place::with_key();
    let fingerprint = place.fingerprint();
    let ran = place.graph(&["new", "graph", "graphs/shop/order.yaml"]);
    assert_eq!((ran.code, ran.out), (0, format!("wrote graphs/shop/order.yaml, signed with {fingerprint}\n")));
    let ran = place.graph(&["new", "contract", "graphs/tools/shop/charge.yaml"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let said = "a graph calls it by `item_id: shop/charge`, with `permissions: [rye.execute.tool.shop.charge]`\n";
    assert!(ran.out.ends_with(said), "{}", ran.out);
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "checked 1 graph: no errors\n"), "{}", ran.err);
    let ran = place.graph(&["run", "graphs/shop/order.yaml", "--input", "name=Ann", "--quiet"]);
    assert!(ran.code == 0 && ran.out.contains("Hello, Ann!"), "{}{}", ran.out, ran.err);
    let text = place.read("graphs/shop/order.yaml");
    for (wrong, message) in [
        (["graph", "graphs/shop/order.yaml"], "error: graphs/shop/order.yaml exists already\n"),
        (["graph", "graphs/order"], "error: graphs/order: the name of the file must end in .yaml\n"),
        (
            ["graph", "graphs/tools/order.yaml"],
            "error: graphs/tools/order.yaml: the files in `tools` of a tree are not graphs\n",
        ),
        (
            ["contract", "graphs/charge.yaml"],
            "error: graphs/charge.yaml: a contract is in the `tools` of a tree, as graphs/tools/shop/charge.yaml\n",
        ),
        (
            ["contract", "graphs/tools/sub.dir/charge.yaml"],
            "error: graphs/tools/sub.dir/charge.yaml: the name gives the id `sub.dir/charge`, and an item id cannot contain '.'; it is made of letters, digits, `_` and `-`, with `/` between its segments\n",
        ),
    ] {
        let ran = place.graph(&["new", wrong[0], wrong[1]]);
        assert_eq!((ran.code, ran.err.as_str()), (3, message));
    }
    assert_eq!(place.read("graphs/shop/order.yaml"), text);
    // Only directly in a tree are `tools` and `keys` reserved.
    assert_eq!(place.graph(&["new", "graph", "graphs/sub/tools/order.yaml"]).code, 0);
    assert_eq!(place.graph(&["new", "graph", "tools/graphs/order.yaml"]).code, 0);
    let ran = Place::new().graph(&["new", "graph", "graphs/order.yaml"]);
    assert!(ran.code == 3 && ran.err.contains("graph keys generate"), "{}", ran.err);
}

#[test]
fn changed_files_are_shown_and_signed_when_confirmed() {
    let place = Place::with_key();
    for name in ["graphs/a.yaml", "graphs/sub/b.yaml"] {
        assert_eq!(place.graph(&["new", "graph", name]).code, 0);
    }
    assert_eq!(place.graph(&["sign", "--changed"]).out, "no file is changed\n");
    place.git(&["init", "--quiet"]);
    place.git(&["add", "graphs"]);
    place.git(&["commit", "--quiet", "--message", "graphs"]);
    let change = |name: &str| {
        let text = place.read(name).replace("A greeting.", "A \u{202e}reply\u{1b}[2J.");
        place.write(name, &text);
        text
    };
    let texts = [change("graphs/a.yaml"), change("graphs/sub/b.yaml")];
    place.write("graphs/graphs.toml", "[lints]\n");
    place.write("graphs/tools/shop/new.yaml", "version: \"1\"\n");
    // Nobody answers: nothing is signed.
    let ran = place.graph(&["sign", "--changed"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.ends_with("error: nobody answered; sign without a question by `--yes`\n"), "{}", ran.err);
    let ran = place.piped(&["sign", "--changed"], "what?\nq\n");
    assert_eq!(ran.code, 1);
    assert!(ran.err.ends_with("answer y, n, a or q\nnot signed: 4 of 4 changed files\n"), "{}", ran.err);
    assert_eq!([place.read("graphs/a.yaml"), place.read("graphs/sub/b.yaml")], texts);
    // One is signed, one is not, the settings are, and the new contract.
    let ran = place.piped(&["sign", "--changed", "graphs"], "n\ny\na\n");
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.ends_with("not signed: 1 of 4 changed files\n"), "{}", ran.err);
    let shown = "--- graphs/a.yaml (signed, as in the last commit)\n+++ graphs/a.yaml\n@@ -1,7 +1,7 @@\n";
    assert!(ran.err.contains(shown), "{}", ran.err);
    assert!(ran.err.contains("-description: A greeting.\n+description: A \\u{202e}reply\\u{1b}[2J.\n"), "{}", ran.err);
    let shown =
        "graphs/graphs.toml: it is not signed\nno commit holds a signed text of it, so all of it is shown\n+[lints]\n";
    assert!(ran.err.contains(shown) || ran.out.contains(shown), "{}{}", ran.out, ran.err);
    assert_eq!(place.read("graphs/a.yaml"), texts[0], "it was not to be signed");
    for name in ["graphs/sub/b.yaml", "graphs/graphs.toml", "graphs/tools/shop/new.yaml"] {
        assert_eq!(place.graph(&["verify", name]).code, 0, "{name}");
    }
    let ran = place.graph(&["sign", "--changed", "--yes"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(place.graph(&["sign", "--changed"]).out, "no file is changed\n");
}

#[test]
fn a_text_is_compared_with_what_a_trusted_key_signed() {
    let place = Place::with_key();
    place.write("graphs/a.yaml", "version: \"1\"\n");
    assert_eq!(place.graph(&["sign", "graphs/a.yaml"]).code, 0);
    // The committed text is not what was signed: it vouches for nothing.
    place.write("graphs/a.yaml", &place.read("graphs/a.yaml").replace("\"1\"", "\"2\""));
    place.git(&["init", "--quiet"]);
    place.git(&["add", "graphs"]);
    place.git(&["commit", "--quiet", "--message", "graphs"]);
    let ran = place.graph(&["sign", "--changed", "--yes"]);
    assert!(ran.out.contains("so all of it is shown\n+version: \"2\"\n"), "{}", ran.out);
    place.git(&["commit", "--quiet", "--all", "--message", "graphs"]);
    // Only the signature is gone.
    place.write("graphs/a.yaml", "version: \"2\"\n");
    let ran = place.graph(&["sign", "--changed", "--yes"]);
    assert!(ran.out.contains("nothing changed below the signature line since the last commit\n"), "{}", ran.out);
    // A key that the tree does not trust signs nothing.
    place.write("graphs/a.yaml", "version: \"3\"\n");
    assert_eq!(place.graph(&["keys", "generate", "--dir", "other"]).code, 0);
    let ran = place.graph(&["sign", "--changed", "--yes", "--key", "other/private_key.pem"]);
    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("is not trusted in graphs/keys; trust it first"), "{}", ran.err);
    assert_eq!(place.read("graphs/a.yaml"), "version: \"3\"\n");
    for (wrong, code) in [
        (&["sign", "--changed", "graphs/a.yaml"][..], 3),
        (&["sign", "--yes", "graphs/a.yaml"], 2),
        (&["sign", "--changed", "none"], 3),
    ] {
        assert_eq!(place.graph(wrong).code, code, "{wrong:?}");
    }
}

#[test]
fn the_generated_code_is_shown() {
    let place = Place::with_key();
    assert_eq!(place.graph(&["new", "graph", "graphs/a.yaml"]).code, 0);
    let ran = place.graph(&["expand", "graphs/a.yaml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let part = "    /// The inputs of a run.\n    #[derive(Debug, Clone, PartialEq)]\n    pub struct Inputs {\n        /// `name`.\n        pub name: String,\n";
    assert!(ran.out.contains(part), "{}", ran.out);
    place.write("graphs/a.yaml", &place.read("graphs/a.yaml").replace("A greeting", "A reply"));
    let ran = place.graph(&["expand", "graphs/a.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""), "nothing is shown of a graph with mistakes");
    assert!(ran.err.starts_with("error[G0011]: `graphs/a.yaml` was changed after it was signed\n"), "{}", ran.err);
}

/// Returns whether a program accepts arguments; `None` if it is not installed.
fn accepts(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap())
}

#[cfg(unix)]
#[test]
fn shells_complete_verbs_and_options() {
    let place = Place::new();
    let script = |shell: &str| {
        let ran = place.graph(&["completions", shell]);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{shell}");
        let name = format!("graph.{shell}");
        place.write(&name, &ran.out);
        place.path(&name).to_str().unwrap().to_owned()
    };
    let bash = script("bash");
    let asked = format!(
        "source {bash}; COMP_WORDS=(graph sign --c); COMP_CWORD=2; _graph graph --c sign; echo ${{COMPREPLY[@]}}"
    );
    assert_eq!(accepts("bash", &["-c", &asked]).unwrap(), "--changed\n");
    accepts("zsh", &["-n", &script("zsh")]);
    let fish = script("fish");
    if let Some(said) = accepts("fish", &["-c", &format!("source {fish}; complete -C 'graph ke'")]) {
        assert!(said.starts_with("keys\t"), "{said}");
    }
}

#[test]
fn every_verb_has_a_page_in_the_manual() {
    let place = Place::new();
    let ran = place.graph(&["man", "pages/man1"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert_eq!(fs::read_dir(place.path("pages/man1")).unwrap().count(), ran.out.lines().count());
    let help = place.graph(&["--help"]).out;
    let verbs = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let verbs: Vec<&str> = verbs.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(verbs.len() > 20, "{help}");
    for verb in verbs.into_iter().filter(|verb| *verb != "help") {
        let page = place.read(&format!("pages/man1/graph-{verb}.1"));
        assert!(page.contains(&format!(".TH GRAPH-{} 1", verb.to_uppercase())), "{page}");
    }
}

/// Writes a tree with one changed file, which a commit holds as it was signed.
fn with_a_change() -> Place {
    let place = Place::with_key();
    assert_eq!(place.graph(&["new", "graph", "graphs/a.yaml"]).code, 0);
    place.git(&["init", "--quiet"]);
    place.git(&["add", "graphs"]);
    place.git(&["commit", "--quiet", "--message", "graphs"]);
    place.write("graphs/a.yaml", &place.read("graphs/a.yaml").replace("A greeting", "A reply"));
    place
}

#[cfg(target_os = "linux")]
#[test]
fn a_change_that_cannot_be_shown_is_not_signed() {
    let place = with_a_change();
    let changed = place.read("graphs/a.yaml");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = place.command(&["sign", "--changed"]);
    let mut child = command.stdin(Stdio::piped()).stderr(full).stdout(Stdio::null()).spawn().unwrap();
    drop(child.stdin.take().unwrap().write_all(b"y\n"));
    assert_eq!(child.wait().unwrap().code(), Some(3));
    assert_eq!(place.read("graphs/a.yaml"), changed);
}

#[cfg(unix)]
#[test]
fn signing_runs_no_program_that_a_repository_names() {
    let place = with_a_change();
    for (name, value) in [
        ("extensions.partialClone", "origin"),
        ("core.repositoryFormatVersion", "1"),
        ("remote.origin.url", "."),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", "touch pwned; git-upload-pack"),
    ] {
        place.git(&["config", name, value]);
    }
    // The text of the commit is gone, so git would fetch it.
    let objects = place.path(".git/objects");
    for directory in fs::read_dir(&objects).unwrap().map(|entry| entry.unwrap().path()) {
        for object in fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()) {
            let id = format!("{}{}", directory.file_name().unwrap().display(), object.file_name().unwrap().display());
            let kind = Command::new("git").args(["cat-file", "-t", &id]).current_dir(place.root()).output().unwrap();
            if kind.stdout == b"blob\n" {
                fs::remove_file(object).unwrap();
            }
        }
    }
    let ran = place.graph(&["sign", "--changed", "--yes"]);
    assert!(ran.out.contains("no commit holds a signed text of it"), "{}{}", ran.out, ran.err);
    assert!(!place.path("pwned").exists());
}

#[cfg(unix)]
#[test]
fn one_bad_file_does_not_keep_the_others_unsigned() {
    let place = with_a_change();
    place.write("graphs/b.yaml", "\u{feff}version: \"1\"\n");
    fs::write(place.path("graphs/c.yaml"), b"\xff").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.path("graphs/d.yaml")).unwrap();
    place.write("graphs/e\u{1b}[2J.yaml", "version: \"1\"\n");
    let ran = place.graph(&["sign", "--changed", "--yes"]);
    assert_eq!(ran.code, 1);
    for message in ["b.yaml: it begins with a byte order mark", "c.yaml", "d.yaml is a link, and is not signed"] {
        assert!(ran.err.contains(message), "{}", ran.err);
    }
    assert!(fs::symlink_metadata(place.path("graphs/d.yaml")).unwrap().is_symlink());
    assert!(ran.out.contains("graphs/e\\u{1b}[2J.yaml: it is not signed"), "{}", ran.out);
    for name in ["graphs/a.yaml", "graphs/e\u{1b}[2J.yaml"] {
        assert_eq!(place.graph(&["verify", name]).code, 0, "{name}");
    }
}
