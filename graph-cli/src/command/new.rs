//! `graph new`: a crate, a graph or a contract to begin with, signed and without mistakes.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

use clap::{Args, Subcommand};
use graph_compiler::project::Project;
use graph_model::name::ItemId;
use graph_signing::{ItemKind, KeyFile, SecretKey, sign};

use super::{own_key_directory, signing_key};
use crate::outcome::{CommandOutcome, CommandResult, Error};

/// Names that cargo or rustc gives to something else, with white space between them.
const RESERVED: &str = "
    abstract alloc as async await become box break build const continue core crate deps do dyn else enum
    examples extern false final fn for gen graph-compiler graph-runtime graph_compiler graph_runtime if impl in
    incremental let loop macro match mod move mut override priv proc-macro proc_macro pub ref return self
    static std struct super test tokio trait true try type typeof unsafe unsized use virtual where while yield
";

#[derive(Subcommand)]
pub(crate) enum New {
    /// Make a crate with a build script, a first graph, its tool, a test and a trusted key, ready for `cargo run`
    Crate(NewCrateArguments),
    /// Write a graph to begin with, and sign it: graphs/order.yaml
    Graph(NewFileArguments),
    /// Write the contract of a tool to begin with, and sign it: graphs/tools/shop/charge.yaml
    Contract(NewFileArguments),
}

#[derive(Args)]
pub(crate) struct NewCrateArguments {
    /// The directory to make; its last part names the package
    directory: PathBuf,
    /// The copy of the repository whose crates the new one depends on; they are not published yet
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The secret key to sign with and to trust [default: your own, which is made if it is missing]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct NewFileArguments {
    /// The file to write; it must not exist yet
    file: PathBuf,
    /// The secret key [default: your own, see `graph keys generate`]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

pub(crate) fn run(new: &New) -> CommandResult {
    match new {
        New::Crate(arguments) => new_crate(arguments),
        New::Graph(arguments) => new_graph(arguments),
        New::Contract(arguments) => new_contract(arguments),
    }
}

fn new_graph(arguments: &NewFileArguments) -> CommandResult {
    let path = &arguments.file;
    let inside = in_tree(path)?;
    if let Some(name) = inside.first().filter(|name| inside.len() > 1 && ["tools", "keys"].contains(&name.as_str())) {
        return Err(Error::new(format!("{}: the files in `{name}` of a tree are not graphs", path.display())));
    }
    valid_id(path, inside.last().map_or("", String::as_str))?;
    write_signed(path, include_str!("../../templates/graph.yaml"), arguments.key.as_ref())
}

fn new_contract(arguments: &NewFileArguments) -> CommandResult {
    let path = &arguments.file;
    let inside = in_tree(path)?;
    let id = match inside.split_first() {
        Some((first, id)) if first == "tools" && !id.is_empty() => id.join("/"),
        _ => {
            let path = path.display();
            let message = "a contract is in the `tools` of a tree, as graphs/tools/shop/charge.yaml";
            return Err(Error::new(format!("{path}: {message}")));
        }
    };
    valid_id(path, &id)?;
    write_signed(path, include_str!("../../templates/contract.yaml"), arguments.key.as_ref())?;
    out!("a graph calls it by `item_id: {id}`, with `permissions: [rye.execute.tool.{}]`", id.replace('/', "."));
    Ok(CommandOutcome::Well)
}

/// Returns the parts of a path below the tree that the file is in, without the extension. A tree has `keys`; a directory called
/// `graphs` becomes one.
fn in_tree(path: &Path) -> Result<Vec<String>, Error> {
    let working = std::env::current_dir()?;
    let file = working.join(path);
    let named = file.ancestors().skip(1).find(|directory| directory.file_name().is_some_and(|name| name == "graphs"));
    let root = match named {
        Some(graphs) if !graphs.join("keys").is_dir() => graphs.to_owned(),
        _ => Project::around(&working, &file).root().to_owned(),
    };
    let inside = file.with_extension("");
    let inside = inside.strip_prefix(&root).unwrap_or(&inside).components();
    Ok(inside.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect())
}

/// Fails if a file's name gives no valid id.
fn valid_id(path: &Path, id: &str) -> Result<(), Error> {
    match ItemId::new(id) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::new(format!("{}: the name gives the id `{id}`, and {error}", path.display()))),
    }
}

/// Writes a text, signed, to a file that does not exist.
fn write_signed(path: &Path, text: &str, key: Option<&PathBuf>) -> CommandResult {
    if path.extension().is_none_or(|extension| extension != "yaml" && extension != "yml") {
        return Err(Error::new(format!("{}: the name of the file must end in .yaml", path.display())));
    }
    let key = signing_key(key)?;
    if fs::symlink_metadata(path).is_ok() {
        return Err(Error::new(format!("{} exists already", path.display())));
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|error| Error::file("make", directory, &error))?;
    }
    super::replace(path, &signed(text, &key)?)?;
    out!("wrote {}, signed with {}", path.display(), key.public().fingerprint());
    Ok(CommandOutcome::Well)
}

fn signed(text: &str, key: &SecretKey) -> Result<String, Error> {
    Ok(sign(ItemKind::YAML, text, key, SystemTime::now())?)
}

fn new_crate(arguments: &NewCrateArguments) -> CommandResult {
    let directory = resolved(&arguments.directory)?;
    let name = package_name(&directory)?;
    let [runtime, testing, compiler] = dependencies(&arguments.from)?;
    let parent = directory.parent().unwrap_or(Path::new("/"));
    if fs::symlink_metadata(&directory).is_ok() {
        return Err(Error::new(format!("{} exists already", arguments.directory.display())));
    }
    let key = match &arguments.key {
        Some(_) => signing_key(arguments.key.as_ref())?,
        None => {
            let own = own_key_directory()?;
            let is_new = !own.join("private_key.pem").exists();
            let key = SecretKey::load_or_generate(&own)?;
            if is_new {
                out!("made the key {} in {}", key.public().fingerprint(), own.display());
            }
            key
        }
    };
    let mut manifest = include_str!("../../templates/crate/manifest.toml").replace("{name}", &name);
    manifest = manifest.replace("{runtime}", &runtime).replace("{testing}", &testing);
    manifest = manifest.replace("{compiler}", &compiler);
    if let Some(workspace) = workspace(parent) {
        manifest.push_str(&format!(
            "\n# A workspace of its own. To share that of {}, remove this and add the package to its members.\n[workspace]\n",
            workspace.display()
        ));
    }
    let trusted = KeyFile::new(key.public(), "self");
    let files = [
        ("Cargo.toml", manifest),
        ("build.rs", include_str!("../../templates/crate/build.rs").to_owned()),
        (".gitignore", "/target\n/keys\n*.pem\n*.key\n*.db\n*.db-*\n".to_owned()),
        ("src/main.rs", include_str!("../../templates/crate/main.rs").to_owned()),
        ("graphs/greet.yaml", signed(include_str!("../../templates/crate/greet.yaml"), &key)?),
        ("graphs/greet.test.yaml", include_str!("../../templates/crate/greet.test.yaml").to_owned()),
        ("graphs/tools/desk/greet.yaml", signed(include_str!("../../templates/crate/greet_tool.yaml"), &key)?),
        (&format!("graphs/keys/{}.toml", trusted.fingerprint), trusted.to_signed_toml(&key, SystemTime::now())),
    ];
    fs::create_dir_all(parent).map_err(|error| Error::file("make", parent, &error))?;
    // The crate appears whole or not at all.
    let temporary = parent.join(format!(".{name}.{}.tmp", std::process::id()));
    let write = || {
        for (name, text) in &files {
            let path = temporary.join(name);
            fs::create_dir_all(path.parent().unwrap_or(&temporary))?;
            fs::write(path, text)?;
        }
        fs::rename(&temporary, &directory)
    };
    write().map_err(|error| {
        // The attempt's files are of no use, and a failure to remove them changes nothing about the error.
        drop(fs::remove_dir_all(&temporary));
        Error::file("make", &directory, &error)
    })?;
    init_repository(&directory);
    let shown = arguments.directory.display();
    out!("made the package {name} in {shown}: `cd {shown} && cargo run`");
    Ok(CommandOutcome::Well)
}

/// Makes a git repository of a directory outside of one, as cargo does. Without git, this does nothing.
fn init_repository(directory: &Path) {
    let is_in_one = directory.ancestors().any(|directory| directory.join(".git").exists());
    if !is_in_one {
        let git = Command::new("git").args(["init", "--quiet"]).arg(directory).stdin(Stdio::null()).output();
        // The crate is complete without a repository.
        drop(git);
    }
}

/// Returns the name that a directory gives to its package.
fn package_name(directory: &Path) -> Result<String, Error> {
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let is_word = name.starts_with(|first: char| first.is_ascii_alphabetic())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    if !is_word || RESERVED.split_whitespace().any(|word| word.eq_ignore_ascii_case(&name)) {
        return Err(Error::new(format!(
            "`{name}` cannot name a package: take letters, digits, `-` and `_`, begin with a letter, and take no word of Rust or cargo"
        )));
    }
    Ok(name)
}

/// Returns the path that a directory to be made will have, without links and `..`: the directories around it are those that it is in,
/// and not those that its text names.
fn resolved(directory: &Path) -> Result<PathBuf, Error> {
    let absolute = std::path::absolute(directory)?;
    for parent in absolute.ancestors().skip(1) {
        let Ok(real) = parent.canonicalize() else { continue };
        let missing = absolute.strip_prefix(parent).unwrap_or(&absolute);
        if missing.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(real.join(missing));
        }
        return Err(Error::new(format!("{}: `..` follows a directory that does not exist", directory.display())));
    }
    Ok(absolute)
}

/// Returns what a manifest requires of graph-runtime, of it for tests, and of graph-compiler.
fn dependencies(from: &Path) -> Result<[String; 3], Error> {
    let from = from.canonicalize().map_err(|error| Error::file("find", from, &error))?;
    let wanted = [
        ("graph-runtime", ", default-features = false, features = [\"macros\"]"),
        ("graph-runtime", ", default-features = false, features = [\"testing\"]"),
        ("graph-compiler", ""),
    ];
    let mut requirements = [String::new(), String::new(), String::new()];
    for (requirement, (name, features)) in requirements.iter_mut().zip(wanted) {
        let path = from.join(name);
        if !path.join(graph_compiler::MANIFEST).is_file() {
            return Err(Error::new(format!("{} holds no package {name}", from.display())));
        }
        // The escapes of a JSON string are those of a TOML string too.
        let path = serde_json::to_string(&path.to_string_lossy())?;
        let version = env!("CARGO_PKG_VERSION");
        *requirement = format!("{{ package = \"state-{name}\", path = {path}, version = \"{version}\"{features} }}");
    }
    Ok(requirements)
}

/// Finds the manifest of the workspace that cargo would count a package in `directory` to.
fn workspace(directory: &Path) -> Option<PathBuf> {
    let manifests = directory.ancestors().map(|directory| directory.join(graph_compiler::MANIFEST));
    let is_workspace = |path: &PathBuf| {
        fs::read_to_string(path).is_ok_and(|text| text.lines().any(|line| line.trim_start().starts_with("[workspace")))
    };
    manifests.into_iter().find(is_workspace)
}
