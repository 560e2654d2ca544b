//! Files that are not graphs: each gets one error that names it and says what to do, quickly and without a panic.

use std::fs;
use std::time::{Duration, Instant, SystemTime};

use crate::support::{key, sign};
use crate::tree::Tree;
use graph_compiler::diagnostic::Diagnostic;
use graph_signing::{ItemKind, KeyFile, SecretKey};

/// The time limit for the worst file, in an unoptimized build of the compiler.
const SOON: Duration = Duration::from_secs(60);

const GRAPH: &str = "\
version: \"1.0.0\"
tool_type: graph
executor_id: rye/core/runtimes/state-graph/runtime
permissions: [rye.execute.tool.*]
config:
  start: a
  nodes:
    a: { type: return }
";

/// Compiles a file of the tree, and returns its diagnostics.
#[track_caller]
fn compile(tree: &Tree, name: &str) -> Vec<Diagnostic> {
    let begun = Instant::now();
    let compilation = tree.project().compile(&tree.path(name));
    let took = begun.elapsed();
    assert!(took < SOON, "{name} took {took:?}");
    assert_eq!(compilation.graph.is_none(), !compilation.diagnostics.is_empty());
    // The replacement for the graph can be expanded too.
    assert!(!compilation.expand().is_empty());
    compilation.diagnostics
}

/// Asserts that compiling `name` gives one error with this code, which names `about` and contains these parts.
#[track_caller]
fn refused_about(tree: &Tree, name: &str, about: &str, code: &str, parts: &[&str]) {
    let diagnostics = compile(tree, name);
    let rendered: Vec<String> = diagnostics.iter().map(Diagnostic::render).collect();
    let [found] = diagnostics.as_slice() else { panic!("{}", rendered.join("\n\n")) };
    let rendered = &rendered[0];
    assert_eq!(found.code.id, code, "{rendered}");
    assert!(rendered.contains(&format!("graphs/{about}")), "{rendered}");
    for part in parts {
        assert!(rendered.contains(part), "{part} is not in:\n{rendered}");
    }
    assert!(found.help.is_some(), "nothing says how to mend it:\n{rendered}");
    assert!(rendered.len() < 3000, "{} bytes are too many to read", rendered.len());
}

#[track_caller]
fn refused(tree: &Tree, name: &str, code: &str, parts: &[&str]) {
    refused_about(tree, name, name, code, parts);
}

/// Writes a file and asserts that it is refused.
#[track_caller]
fn refuses(content: impl AsRef<[u8]>, code: &str, parts: &[&str]) {
    let tree = Tree::new();
    tree.write("g.yaml", content);
    refused(&tree, "g.yaml", code, parts);
}

#[test]
fn a_missing_file_says_what_the_path_is_relative_to() {
    refused(&Tree::new(), "g.yaml", "G0001", &["there is no such file", "relative to the directory of the package"]);
}

#[test]
fn a_directory_is_not_read() {
    let tree = Tree::new();
    fs::create_dir(tree.path("g.yaml")).unwrap();
    refused(&tree, "g.yaml", "G0001", &["it is a directory", "name a file"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_does_not_hold_up_the_build() {
    let tree = Tree::new();
    assert!(std::process::Command::new("mkfifo").arg(tree.path("g.yaml")).status().unwrap().success());
    refused(&tree, "g.yaml", "G0001", &["it is a pipe or a device", "name a file"]);
}

#[test]
fn a_path_through_a_file_is_not_read() {
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    refused(&tree, "g.yaml/h.yaml", "G0001", &["cannot read `graphs/g.yaml/h.yaml`"]);
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_read_says_so() {
    use std::os::unix::fs::PermissionsExt;
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    fs::set_permissions(tree.path("g.yaml"), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(tree.path("g.yaml")).is_ok() {
        println!("nothing is shown: this user reads every file, as root does");
        return;
    }
    refused(&tree, "g.yaml", "G0001", &["permission denied", "check the file's permissions"]);
}

#[test]
fn an_empty_file_is_not_a_graph() {
    refuses("", "G0004", &["`graphs/g.yaml` is empty"]);
    refuses("\u{feff}\r\n\t \n", "G0004", &["`graphs/g.yaml` is empty"]);
    refuses(sign("# later\n"), "G0004", &["contains only comments"]);
}

#[test]
fn a_file_of_100_mb_is_not_read() {
    let tree = Tree::new();
    let file = fs::File::create(tree.path("g.yaml")).unwrap();
    file.set_len(100 * 1024 * 1024).unwrap();
    refused(&tree, "g.yaml", "G0002", &["104857600 bytes", "at most 4194304"]);
}

#[test]
fn a_file_that_is_not_utf8_is_refused_with_its_line() {
    refuses(
        b"\x7fELF\x02\x01\x01\x00\xff\xfe",
        "G0003",
        &["is not UTF-8 text: byte 8, on line 1", "save the file as UTF-8"],
    );
    let mut signed = sign(GRAPH).into_bytes();
    signed.extend(b"description: caf\xe9\n");
    refuses(signed, "G0003", &["on line 10"]);
    let utf_16: Vec<u8> = GRAPH.encode_utf16().flat_map(u16::to_le_bytes).collect();
    refuses([&[0xff, 0xfe], utf_16.as_slice()].concat(), "G0003", &["byte 0, on line 1"]);
}

#[test]
fn a_byte_order_mark_before_the_signature_is_named() {
    refuses(format!("\u{feff}{}", sign(GRAPH)), "G0010", &["it begins with a byte order mark"]);
}

#[test]
fn windows_line_ends_do_not_break_the_signature() {
    let tree = Tree::new();
    tree.write("g.yaml", sign(&GRAPH.replace('\n', "\r\n")));
    assert!(compile(&tree, "g.yaml").is_empty());
    tree.write("g.yaml", sign(GRAPH).replace('\n', "\r\n"));
    assert!(compile(&tree, "g.yaml").is_empty());
}

#[test]
fn tabs_do_not_indent() {
    refuses(
        sign(&GRAPH.replace("    a:", "\ta:")),
        "G0020",
        &["graphs/g.yaml:9:", "tabs cannot indent in YAML: use spaces"],
    );
}

#[test]
fn brackets_without_end_are_not_followed() {
    for open in ["[", "{a: ", "- ", "? "] {
        let mut text = GRAPH.to_owned();
        text.push_str("ours:\n  ");
        text.push_str(&open.repeat(100_000));
        let tree = Tree::new();
        tree.write("g.yaml", sign(&text));
        let diagnostics = compile(&tree, "g.yaml");
        let [found] = diagnostics.as_slice() else { panic!("{} errors", diagnostics.len()) };
        assert!(["G0020", "G0021", "G0025"].contains(&found.code.id), "{}", found.render());
        assert!(found.render().len() < 2_000_000);
    }
    let text = format!("{GRAPH}ours: {}{}\n", "[".repeat(100_000), "]".repeat(100_000));
    refuses_deep(&text);
}

/// As [`refuses`], for a text whose values nest too deeply.
#[track_caller]
fn refuses_deep(text: &str) {
    let tree = Tree::new();
    tree.write("g.yaml", sign(text));
    refused(&tree, "g.yaml", "G0025", &["values nest deeper than 64 levels"]);
}

#[test]
fn a_file_with_too_many_values_is_refused() {
    refuses(sign(&format!("{GRAPH}ours: [{}]\n", "1,".repeat(600_000))), "G0025", &["more than 500000 values"]);
}

#[test]
fn a_node_with_more_edges_than_anybody_reads_is_refused() {
    let edges = "{ to: a, when: { path: visit.number, value: 1 } }, ".repeat(1_001);
    let graph = GRAPH.replace("type: return", &format!("type: gate, next: [{edges}]"));
    refuses(sign(&graph), "G0025", &["a node has at most 1000 edges", "let edges lead to gates"]);
}

#[test]
fn an_alias_bomb_does_not_go_off() {
    let mut text = format!("{GRAPH}a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let aliases = vec![format!("*a{}", level - 1); 9].join(", ");
        text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
    }
    let tree = Tree::new();
    tree.write("g.yaml", sign(&text));
    let diagnostics = compile(&tree, "g.yaml");
    assert!(diagnostics.iter().all(|found| found.code.id == "G0021" && found.help.is_some()));
    assert_eq!(diagnostics.len(), 10 + 9 * 9, "each anchor and each alias");
    // One anchor is enough.
    refuses(sign(&format!("{GRAPH}ours: [&it x]\n")), "G0021", &["an anchor", "remove the `&name`"]);
}

#[test]
fn a_repeated_key_is_refused() {
    refuses(sign(&format!("{GRAPH}version: \"2\"\n")), "G0022", &["the key `version` occurs twice", "first here"]);
}

#[test]
fn a_file_is_one_document() {
    refuses(sign(&format!("{GRAPH}---\n{GRAPH}")), "G0021", &["one YAML document", "a file of its own"]);
    // The other documents may also come before the graph.
    refuses(sign(&format!("--- 1\n--- 2\n{GRAPH}")), "G0021", &["one YAML document"]);
}

#[test]
fn only_an_unchanged_file_with_a_trusted_signature_compiles() {
    let signed = sign(GRAPH);
    let (line, text) = signed.split_once('\n').unwrap();
    let sign_again = "`graph sign graphs/g.yaml`";
    refuses(GRAPH, "G0010", &["is not signed", sign_again]);
    refuses(format!("\n{signed}"), "G0010", &["a signature must be the first line", sign_again]);
    refuses(format!(" {signed}"), "G0010", &["mentions a signature but does not begin with one"]);
    refuses(signed.replace("type: return", "type:  return"), "G0011", &["was changed after it was signed", sign_again]);
    refuses(format!("{signed}\n"), "G0011", &["restore the file"]);
    refuses(line, "G0011", &[]);
    refuses(format!("{line} # mine\n{text}"), "G0015", &["16 lower-case hex digits", sign_again]);
    refuses(format!("{line}|nobody\n{text}"), "G0015", &["`provider@user`"]);
    let other = SecretKey::from_seed(&[10; 32]);
    let theirs = graph_signing::sign(ItemKind::YAML, GRAPH, &other, SystemTime::UNIX_EPOCH).unwrap();
    let (ours, others) = (key().public().fingerprint(), other.public().fingerprint());
    refuses(&theirs, "G0012", &["a key that is not trusted", others.as_str(), "graph keys trust"]);
    refuses(theirs.replace(others.as_str(), ours.as_str()), "G0014", &["was not made by", "do not trust this file"]);
}

#[test]
fn a_contract_is_verified_like_a_graph() {
    let tree = Tree::new();
    let graph = GRAPH.replace("a: { type: return }", "a: { action: { item_id: shop/pay } }");
    tree.write("g.yaml", sign(&graph.replace("rye.execute.tool.*", "rye.execute.tool.shop.pay")));
    let contract = "version: \"1\"\ntool_type: rust\n";
    tree.write("tools/shop/pay.yaml", contract);
    refused_about(&tree, "g.yaml", "tools/shop/pay.yaml", "G0010", &["`graph sign graphs/tools/shop/pay.yaml`"]);
    tree.write("tools/shop/pay.yaml", sign(contract).replace("rust", "ruts"));
    refused_about(&tree, "g.yaml", "tools/shop/pay.yaml", "G0011", &[]);
    tree.write("tools/shop/pay.yaml", "");
    refused_about(&tree, "g.yaml", "tools/shop/pay.yaml", "G0004", &[]);
    fs::remove_file(tree.path("tools/shop/pay.yaml")).unwrap();
    fs::create_dir(tree.path("tools/shop/pay.yaml")).unwrap();
    refused_about(&tree, "g.yaml", "tools/shop/pay.yaml", "G0001", &["it is a directory"]);
    fs::remove_dir(tree.path("tools/shop/pay.yaml")).unwrap();
    assert!(compile(&tree, "g.yaml").is_empty(), "a tool without contract");
}

#[test]
fn a_file_signed_by_a_revoked_key_does_not_compile() {
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    assert!(compile(&tree, "g.yaml").is_empty());
    let mut file = KeyFile::new(key().public(), "somebody");
    file.revoked_at = Some("2026-02-03T00:00:00Z".to_owned());
    tree.write(&format!("keys/{}.toml", file.fingerprint), file.to_signed_toml(&key(), SystemTime::now()));
    let parts = ["was revoked on 2026-02-03T00:00:00Z", "(somebody)", "signed with another key"];
    refused(&tree, "g.yaml", "G0013", &parts);
}

/// Asserts that a tree with this key file compiles nothing, although another key of the tree signed the graph.
#[track_caller]
fn refuses_key(name: &str, content: impl AsRef<[u8]>, reason: &str) {
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    tree.write(name, content);
    refused_about(&tree, "g.yaml", name, "G0016", &["is refused as a trusted key: ", reason, "graph keys trust"]);
}

/// Writes a key file around a PEM, signed by the trusted key.
fn key_file_of(pem: &str) -> String {
    sign(&format!("fingerprint = \"0123456789abcdef\"\n[public_key]\npem = \"\"\"\n{pem}\"\"\"\n"))
}

#[test]
fn an_invalid_key_file_stops_the_tree() {
    let name = "keys/0123456789abcdef.toml";
    refuses_key(name, "fingerprint = 1\n", "not signed");
    refuses_key(name, "", "not signed");
    refuses_key(name, b"\xff\xfe\x00", "it cannot be read");
    refuses_key(name, sign("fingerprint = \"\n"), "it is not a key file");
    refuses_key(name, sign("owner = \"me\"\n"), "missing field `fingerprint`");
    refuses_key(name, vec![b'#'; 100_000], "65536 bytes");
    let other = SecretKey::from_seed(&[10; 32]);
    let file = KeyFile::new(other.public(), "somebody");
    let own_name = format!("keys/{}.toml", file.fingerprint);
    let signed = file.to_signed_toml(&key(), SystemTime::UNIX_EPOCH);
    refuses_key(name, &signed, "fingerprint is");
    refuses_key(&own_name, signed.replace("somebody", "somebodx"), "changed after it was signed");
    let third = SecretKey::from_seed(&[11; 32]);
    refuses_key(&own_name, file.to_signed_toml(&third, SystemTime::UNIX_EPOCH), "a key that is not trusted");
}

#[test]
fn a_key_of_another_kind_stops_the_tree() {
    let name = "keys/0123456789abcdef.toml";
    let x25519 = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VuAyEAvSD2iKZ9j8SwwjismgLw2jPysxpyqhlSLEM5xgN4Zic=\n-----END PUBLIC KEY-----\n";
    let rsa = "-----BEGIN PUBLIC KEY-----\n\
        MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDSopqi+1dHomRwT51tRAA1uXLG\n\
        mf0sn8MiDpYTZz2n96V0fD0FeKQi5pWKrZwier+vT0jS+Mwyum6BmwtkCKYGr6hx\n\
        80Ib2lKTEy7V7c/w2ZvTr3SsDxKfCTdjWwjEqm/FePZ0xIG6ZNzE8K2Ihx42aqZC\n\
        hzlt/az555vFGWVhhQIDAQAB\n-----END PUBLIC KEY-----\n";
    for pem in [x25519, rsa] {
        refuses_key(name, key_file_of(pem), "not an Ed25519 public key in PEM");
        refuses_key(name, key_file_of(pem), "it is a public key, of another kind or damaged");
    }
    refuses_key(name, key_file_of("hello\n"), "it is not PEM");
    let secret = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAcH\n-----END PRIVATE KEY-----\n";
    refuses_key(name, key_file_of(secret), "it is a secret key");
}

#[cfg(unix)]
#[test]
fn a_key_file_that_may_not_be_read_stops_the_tree() {
    use std::os::unix::fs::PermissionsExt;
    let name = "keys/0123456789abcdef.toml";
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    tree.write(name, "");
    fs::set_permissions(tree.path(name), fs::Permissions::from_mode(0o000)).unwrap();
    if fs::File::open(tree.path(name)).is_ok() {
        println!("nothing is shown: this user reads every file, as root does");
        return;
    }
    refused_about(&tree, "g.yaml", name, "G0016", &["it cannot be read"]);
}

#[test]
fn a_directory_in_place_of_a_key_file_stops_the_tree() {
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    fs::create_dir(tree.path("keys/0123456789abcdef.toml")).unwrap();
    refused_about(&tree, "g.yaml", "keys/0123456789abcdef.toml", "G0016", &["it cannot be read"]);
}

#[test]
fn a_tree_without_keys_trusts_nobody() {
    let tree = Tree::new();
    tree.write("g.yaml", sign(GRAPH));
    fs::remove_dir_all(tree.path("keys")).unwrap();
    refused(&tree, "g.yaml", "G0012", &["graph keys trust"]);
    tree.write("keys", "no directory");
    let codes: Vec<&str> = compile(&tree, "g.yaml").iter().map(|found| found.code.id).collect();
    assert_eq!(codes, ["G0012", "G0016"]);
}
