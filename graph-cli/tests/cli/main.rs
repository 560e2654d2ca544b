//! The command line as its user sees it: its output, its exit codes and the files that it leaves.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod agents;
mod answer;
mod check;
#[cfg(unix)]
mod clocks;
#[cfg(unix)]
mod computed;
#[cfg(unix)]
mod edit;
#[cfg(unix)]
mod growth;
#[cfg(unix)]
mod hostile;
#[cfg(unix)]
mod mcp;
mod new;
#[cfg(unix)]
mod outlive;
#[cfg(unix)]
mod output;
#[cfg(unix)]
#[path = "../../../tests/support/page.rs"]
mod page;
#[cfg(unix)]
mod pages;
mod pause;
mod place;
#[cfg(unix)]
mod programs;
#[cfg(unix)]
mod run;
#[cfg(unix)]
mod schedules;
#[cfg(unix)]
mod seeds;
mod signal;
#[cfg(unix)]
mod stats;
#[cfg(unix)]
mod store;
mod stored_run;
mod tasks;
#[cfg(unix)]
mod terminal;
mod testing;
#[cfg(unix)]
mod threads;
#[cfg(unix)]
mod versions;
mod views;
#[cfg(unix)]
mod work;

use std::fs;
use std::path::Path;

use place::{Place, Ran};

impl Place {
    fn fingerprint(&self) -> String {
        let list = self.graph(&["keys", "list"]).out;
        list.split_whitespace().next().unwrap().to_owned()
    }
}

const GRAPH: &str = "version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
category: test
permissions: [rye.execute.tool.rye.bash]
config:
  start: done
  nodes:
    done: { type: return }
";

#[test]
fn the_help_says_what_there_is() {
    let place = Place::new();
    let mut pages = String::new();
    for verb in [
        &["--help"][..],
        &["new", "--help"],
        &["new", "crate", "--help"],
        &["new", "graph", "--help"],
        &["new", "contract", "--help"],
        &["keys", "--help"],
        &["keys", "generate", "--help"],
        &["keys", "trust", "--help"],
        &["keys", "revoke", "--help"],
        &["keys", "list", "--help"],
        &["sign", "--help"],
        &["verify", "--help"],
        &["check", "--help"],
        &["test", "--help"],
        &["coverage", "--help"],
        &["expand", "--help"],
        &["explain", "--help"],
        &["schema", "--help"],
        &["run", "--help"],
        &["work", "--help"],
        &["mcp", "--help"],
        &["mcp", "serve", "--help"],
        &["mcp", "import", "--help"],
        &["schedules", "--help"],
        &["runs", "--help"],
        &["stats", "--help"],
        &["watch", "--help"],
        &["cancel", "--help"],
        &["gc", "--help"],
        &["verify-run", "--help"],
        &["attest", "--help"],
        &["verify-attestation", "--help"],
        &["show", "--help"],
        &["diff", "--help"],
        &["replay", "--help"],
        &["edit", "--help"],
        &["fork", "--help"],
        &["files", "--help"],
        &["files", "rebuild", "--help"],
        &["files", "verify", "--help"],
        &["cache", "--help"],
        &["cache", "ls", "--help"],
        &["cache", "clear", "--help"],
        &["completions", "--help"],
        &["man", "--help"],
    ] {
        let ran = place.graph(verb);
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{verb:?}");
        pages.push_str(&format!("$ graph {}\n{}\n", verb.join(" "), ran.out));
    }
    insta::assert_snapshot!(pages);
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let place = Place::new();
    for wrong in [&["chekc"][..], &["sign"], &["verify"], &["keys", "revoke"], &["check", "--nope"], &[]] {
        let ran = place.graph(wrong);
        assert_eq!(ran.code, 2, "{wrong:?}: {}", ran.err);
        assert!(ran.err.contains("Usage"), "{wrong:?}: {}", ran.err);
    }
    assert!(place.graph(&["chekc"]).err.contains("check"), "a slip is recognised");
}

#[test]
fn a_graph_is_signed_verified_and_checked() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "checked 1 graph: 1 error\n"));
    assert!(ran.err.starts_with("error[G0010]: `graphs/g.yaml` is not signed\n"), "{}", ran.err);
    let ran = place.graph(&["sign", "graphs/g.yaml"]);
    let fingerprint = place.fingerprint();
    assert_eq!((ran.code, ran.out), (0, format!("signed graphs/g.yaml with {fingerprint}\n")));
    assert!(place.read("graphs/g.yaml").starts_with("# rye:signed:"));
    assert!(place.read("graphs/g.yaml").ends_with(&format!(":{fingerprint}\n{GRAPH}")));
    let ran = place.graph(&["check"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "checked 1 graph: no errors\n", ""));
    let ran = place.graph(&["verify", "graphs/g.yaml"]);
    assert_eq!(ran.code, 0);
    assert!(ran.out.contains(&format!("signed by {fingerprint} (me)")), "{}", ran.out);
    // Signing again replaces the line.
    assert_eq!(place.graph(&["sign", "graphs/g.yaml"]).code, 0);
    assert_eq!(place.read("graphs/g.yaml").matches("rye:signed").count(), 1);
}

#[test]
fn schema_command_names_tree_nodes_and_writes_to_its_output() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    let ran = place.graph(&["schema"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let of_tree: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(of_tree["definitions"]["target"]["anyOf"][0]["enum"], serde_json::json!(["done"]));
    let ran = place.graph(&["schema", "graphs/g.yaml", "--output", "g.schema.json"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (0, "", ""));
    let of_graph: serde_json::Value = serde_json::from_str(&place.read("g.schema.json")).unwrap();
    assert_eq!(of_graph["definitions"]["target"]["enum"], serde_json::json!(["done"]));
    let ran = place.graph(&["schema", "nothing"]);
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert_eq!(ran.err, "error: cannot read `nothing`: there is no such file\n");
}

#[test]
fn a_changed_byte_is_found() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    place.graph(&["sign", "graphs/g.yaml"]);
    place.write("graphs/g.yaml", &place.read("graphs/g.yaml").replace("1.0.0", "1.0.1"));
    let ran = place.graph(&["verify", "graphs/g.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, ""));
    assert!(ran.err.starts_with("error: graphs/g.yaml: "), "{}", ran.err);
    let ran = place.graph(&["check", "graphs/g.yaml"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("error[G0011]: `graphs/g.yaml` was changed after it was signed"), "{}", ran.err);
    assert!(ran.err.contains("`graph sign graphs/g.yaml`"), "{}", ran.err);
}

#[test]
fn a_mistake_is_shown_at_its_place_with_a_remedy() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", &GRAPH.replace("start: done", "start: dnoe"));
    place.graph(&["sign", "graphs/g.yaml"]);
    let ran = place.graph(&["check"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains(" --> graphs/g.yaml:8:10\n"), "{}", ran.err);
    assert!(ran.err.contains("did you mean `done`?"), "{}", ran.err);
}

#[test]
fn a_revoked_key_is_refused_with_the_date_and_stays_revoked() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    place.graph(&["sign", "graphs/g.yaml"]);
    let fingerprint = place.fingerprint();
    let ran = place.graph(&["keys", "revoke", &fingerprint]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let ran = place.graph(&["check"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("is signed by a key that was revoked on 20"), "{}", ran.err);
    assert!(
        place.graph(&["keys", "list"]).out.contains("(me)")
            || place.graph(&["keys", "list"]).out.contains("revoked on 20")
    );
    let ran = place.graph(&["keys", "revoke", &fingerprint]);
    assert!(ran.out.contains("was revoked on"), "{}", ran.out);
    // It signs nothing for this tree, which would refuse the signature, and signs for others.
    let text = place.read("graphs/g.yaml");
    let ran = place.graph(&["sign", "graphs/g.yaml"]);
    let said = format!("error: {fingerprint}, your key, was revoked on ");
    assert!(ran.code == 3 && ran.err.starts_with(&said) && ran.out.is_empty(), "{}{}", ran.out, ran.err);
    assert_eq!(place.read("graphs/g.yaml"), text);
    place.write("other/graphs/g.yaml", GRAPH);
    assert_eq!(place.graph(&["sign", "other/graphs/g.yaml"]).code, 0);
    // To trust it again takes more than the command by which it was trusted.
    let ran = place.graph(&["keys", "trust"]);
    assert!(ran.code == 3 && ran.err.contains("to trust it again, remove graphs/keys/"), "{}", ran.err);
    assert!(place.graph(&["keys", "list"]).out.contains("revoked on 20"));
}

#[test]
fn a_key_whose_file_is_refused_is_listed_as_blocked() {
    let place = Place::with_key();
    place.write("graphs/g.yaml", GRAPH);
    place.graph(&["sign", "graphs/g.yaml"]);
    let fingerprint = place.fingerprint();
    let file = format!("graphs/keys/{fingerprint}.toml");
    place.write(&file, &format!("<!-- rye:signed:x -->\n{}", place.read(&file)));
    let ran = place.graph(&["keys", "list"]);
    assert_eq!((ran.code, ran.out), (1, format!("{fingerprint}  blocked, since {file} is refused\n")));
    let ran = place.graph(&["verify", "graphs/g.yaml"]);
    assert!(ran.code == 1 && ran.err.contains("a key that is blocked"), "{}", ran.err);
    let ran = place.graph(&["keys", "revoke", &fingerprint]);
    assert!(ran.code == 3 && ran.err.contains("is blocked already"), "{}", ran.err);
}

/// A place whose owner, and Bo with the keys in `bo`, are trusted.
fn with_bo(arguments: &[&str]) -> (Place, Ran) {
    let place = Place::with_key();
    assert_eq!(place.graph(&["keys", "generate", "--dir", "bo"]).code, 0);
    let ran = place.graph(&[&["keys", "trust", "bo/public_key.pem", "--owner", "Bo"], arguments].concat());
    (place, ran)
}

#[test]
fn a_key_gets_roles_from_another_key_and_the_list_names_them() {
    let (place, ran) = with_bo(&["--role", "refunds", "--role", "audit", "--role", "refunds"]);
    assert!(ran.code == 0 && ran.out.ends_with(".toml; it may answer as audit, refunds\n"), "{}{}", ran.out, ran.err);
    let list = place.graph(&["keys", "list"]);
    assert!(list.code == 0 && list.out.contains("  Bo, may answer as audit, refunds\n"), "{}", list.out);
    assert!(list.out.contains("  me\n"), "{}", list.out);
    // The new file names fewer roles, and then none.
    let ran = place.graph(&["keys", "trust", "bo/public_key.pem", "--owner", "Bo", "--role", "audit"]);
    assert!(ran.out.ends_with("\nremoved roles that it had: refunds; `--role` gives roles\n"), "{}", ran.out);
    let ran = place.graph(&["keys", "trust", "bo/public_key.pem", "--owner", "Bo"]);
    assert!(ran.out.ends_with("\nremoved roles that it had: audit; `--role` gives roles\n"), "{}", ran.out);
    let ran = place.graph(&["keys", "trust", "bo/public_key.pem", "--owner", "Bo"]);
    assert!(ran.code == 0 && ran.out.lines().count() == 1, "{}", ran.out);
    assert!(place.graph(&["keys", "list"]).out.contains("  Bo\n"));
}

#[test]
fn a_key_gets_no_role_from_itself() {
    let (place, ran) = with_bo(&["--role", "refunds"]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    for arguments in [
        &["keys", "trust", "--role", "refunds"][..],
        &["keys", "trust", "bo/public_key.pem", "--key", "bo/private_key.pem", "--role", "refunds"],
    ] {
        let before = place.graph(&["keys", "list"]).out;
        let ran = place.graph(arguments);
        assert_eq!((ran.code, ran.out.as_str()), (3, ""));
        assert!(ran.err.starts_with("error: a key cannot give itself a role: "), "{}", ran.err);
        assert!(ran.err.contains("`--key`"), "{}", ran.err);
        assert_eq!(place.graph(&["keys", "list"]).out, before);
    }
    // Signed again by the key itself, the roles in its file do not count.
    let fingerprint = bo(&place);
    let file = format!("graphs/keys/{fingerprint}.toml");
    assert_eq!(place.graph(&["sign", &file, "--key", "bo/private_key.pem"]).code, 0);
    let list = place.graph(&["keys", "list"]);
    let expected = "  Bo, may not answer as refunds: it signed its own file, and a key cannot give itself a role\n";
    assert!(list.code == 0 && list.out.contains(expected), "{}", list.out);
}

#[test]
fn a_key_does_not_vouch_for_the_key_that_vouches_for_it() {
    let (place, _) = with_bo(&[]);
    let before = place.graph(&["keys", "list"]);
    let own = ".ai/config/keys/signing/public_key.pem";
    let ran = place.graph(&["keys", "trust", own, "--key", "bo/private_key.pem", "--role", "refunds"]);
    assert_eq!(ran.code, 3, "{}", ran.out);
    assert!(
        ran.err.contains("which vouches for it: keys that vouch only for each other are not trusted"),
        "{}",
        ran.err
    );
    let after = place.graph(&["keys", "list"]);
    assert_eq!((after.code, after.out), (0, before.out));
}

#[test]
fn a_name_that_is_no_role_is_a_wrong_command_line() {
    for name in ["", "Refunds", "a b", "1st", &"a".repeat(65)] {
        let (place, ran) = with_bo(&["--role", name]);
        assert_eq!(ran.code, 2, "{name}: {}", ran.err);
        assert!(ran.err.contains("is not a role: a role is a letter") || name.is_empty(), "{name}: {}", ran.err);
        assert!(!place.graph(&["keys", "list"]).out.contains("Bo"));
    }
}

#[test]
fn a_revoked_key_keeps_its_roles_in_its_file_and_the_list_does_not_name_them() {
    let (place, _) = with_bo(&["--role", "refunds"]);
    let fingerprint = bo(&place);
    let ran = place.graph(&["keys", "revoke", &fingerprint]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let file = place.read(&format!("graphs/keys/{fingerprint}.toml"));
    assert!(file.contains("\nroles = [\"refunds\"]\nrevoked_at = \"20"), "{file}");
    let list = place.graph(&["keys", "list"]).out;
    assert!(list.contains("  Bo, revoked on 20") && !list.contains("refunds"), "{list}");
}

#[test]
fn roles_of_a_refused_file_are_not_kept_and_the_command_says_so() {
    let (place, _) = with_bo(&["--role", "refunds"]);
    let file = format!("graphs/keys/{}.toml", bo(&place));
    place.write(&file, &place.read(&file).replace("refunds", "returns"));
    let ran = place.graph(&["keys", "trust", "bo/public_key.pem", "--owner", "Bo"]);
    let expected = "\nremoved the `roles` of the file that it replaces, which was refused; `--role` gives roles\n";
    assert!(ran.code == 0 && ran.out.ends_with(expected), "{}{}", ran.out, ran.err);
    assert!(place.graph(&["keys", "list"]).out.contains("  Bo\n"));
}

/// The fingerprint of Bo's key.
fn bo(place: &Place) -> String {
    let list = place.graph(&["keys", "list"]).out;
    let line = list.lines().find(|line| line.contains("  Bo")).unwrap();
    line.split_whitespace().next().unwrap().to_owned()
}

#[test]
fn the_secret_key_is_owner_only_and_never_replaced_or_printed() {
    let place = Place::new();
    let ran = place.graph(&["keys", "generate"]);
    assert_eq!(ran.code, 0);
    let path = ".ai/config/keys/signing/private_key.pem";
    let secret = place.read(path);
    assert!(secret.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(place.path(path)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let again = place.graph(&["keys", "generate"]);
    assert_eq!(again.code, 3, "{}", again.out);
    assert_eq!(place.read(path), secret);
    let public = ".ai/config/keys/signing/public_key.pem";
    let whole = place.read(public);
    fs::write(place.path(public), "").unwrap();
    let mended = place.graph(&["keys", "generate"]);
    assert_eq!((mended.code, place.read(public), place.read(path)), (0, whole, secret.clone()), "{}", mended.err);
    let line = secret.lines().nth(1).unwrap();
    for ran in [ran, again, place.graph(&["keys", "trust"]), place.graph(&["keys", "list"])] {
        assert!(!ran.out.contains(line) && !ran.err.contains(line));
    }
}

#[test]
fn an_impossible_request_exits_with_3_and_says_why() {
    let place = Place::with_key();
    place.write("empty.yaml", "");
    place.write("not-utf8.yaml", "x");
    fs::write(place.path("not-utf8.yaml"), [0xff, 0xfe, 0x00]).unwrap();
    place.write("bad.pem", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    place.write("g.yaml", GRAPH);
    fs::File::create(place.path("large.yaml")).unwrap().set_len(100 * 1024 * 1024).unwrap();
    for (arguments, part) in [
        (&["sign", "missing.yaml"][..], "cannot read missing.yaml"),
        (&["sign", "graphs"], "graphs is a directory"),
        (&["sign", "not-utf8.yaml"], "cannot read not-utf8.yaml"),
        (&["sign", "large.yaml"], "large.yaml has more than"),
        (&["sign", "g.yaml", "--key", "bad.pem"], "bad.pem"),
        (
            &["sign", "g.yaml", "--key", "nothing.pem"],
            "no signing key at nothing.pem; make one first: `graph keys generate`",
        ),
        (&["verify", "missing.yaml"], "cannot read missing.yaml"),
        (&["verify", "g.yaml", "--public-key", "g.yaml"], "g.yaml"),
        (&["keys", "trust", "g.yaml"], "g.yaml"),
        (&["keys", "revoke", "0000000000000000"], "is not trusted in graphs/keys"),
        (&["keys", "revoke", "xyz"], "xyz"),
        (&["check", "nowhere-at-all/"], "nowhere-at-all"),
    ] {
        let ran = place.graph(arguments);
        assert!(ran.err.contains(part), "{arguments:?}: {}", ran.err);
        assert!(ran.code == 3 || (arguments[0] == "check" && ran.code == 1), "{arguments:?} exits with {}", ran.code);
        assert!(!ran.err.contains("panicked"), "{arguments:?}: {}", ran.err);
    }
    assert_eq!(place.read("g.yaml"), GRAPH, "a failed command changes nothing");
    let files: Vec<_> = fs::read_dir(place.root()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!files.iter().any(|name| name.to_string_lossy().ends_with(".tmp")), "{files:?}");
}

#[test]
fn the_demo_key_is_marked_wherever_it_shows() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let place = Place::new();
    let at = |name: &str| root.join(name).display().to_string();
    let ran = place.graph(&["keys", "list", "--keys", &at("graphs/keys")]);
    assert!(ran.out.contains("DEMO KEY"), "{}", ran.out);
    let ran = place.graph(&["verify", &at("graphs/project_stats.yaml")]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("DEMO KEY"), "{}", ran.out);
}
