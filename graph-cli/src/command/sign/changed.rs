//! `graph sign --changed`: find the files whose signatures do not hold, show what changed in them, and ask before signing.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use graph_compiler::find_signed;
use graph_signing::{ItemKind, KeyRing, SecretKey, SignatureError, normalise, open, verify};
use similar::{ChangeTag, TextDiff};

use super::{refuse_revoked, sign_text};
use crate::command::{plain, read};
use crate::outcome::{CommandOutcome, CommandResult, Error};
use crate::output;

/// The lines that are shown around a change.
const CONTEXT: usize = 3;

/// The time after which a difference need not be the smallest any more.
const PATIENCE: Duration = Duration::from_secs(2);

/// A file whose signature does not hold.
struct ChangedFile {
    path: PathBuf,
    /// The text as it was read: exactly this is shown and signed.
    text: String,
    reason: SignatureError,
    /// The last committed text, if a trusted key signed it.
    signed: Option<String>,
}

/// The answer to the question whether to sign a file.
enum Answer {
    Yes,
    No,
    /// Yes to this file and all others.
    All,
    /// No to this file and all others.
    Quit,
}

pub(super) fn run(directories: &[PathBuf], key: &SecretKey, is_sure: bool) -> CommandResult {
    let graphs = [PathBuf::from("graphs")];
    let directories = if directories.is_empty() { graphs.as_slice() } else { directories };
    let (mut changed, mut problems) = (Vec::new(), 0);
    for directory in directories {
        problems += find(directory, key, &mut changed)?;
    }
    if changed.is_empty() && problems == 0 {
        out!("no file is changed");
    }
    let (mut is_sure, mut unsigned) = (is_sure, 0);
    for (at, file) in changed.iter().enumerate() {
        let answer = if is_sure {
            output::write_out(&shown(file));
            Answer::Yes
        } else {
            ask(file, key)?
        };
        match answer {
            Answer::Yes => {}
            Answer::All => is_sure = true,
            Answer::No => {
                unsigned += 1;
                continue;
            }
            Answer::Quit => {
                unsigned += changed.len() - at;
                break;
            }
        }
        must_be_as_shown(file)?;
        if let Err(error) = sign_text(&file.path, &file.text, key) {
            err!("error: {error}");
            problems += 1;
        }
    }
    if unsigned > 0 {
        err!("not signed: {unsigned} of {} changed files", changed.len());
    }
    Ok(CommandOutcome::of(unsigned == 0 && problems == 0))
}

/// Fails if a file has another text than the one that was shown.
fn must_be_as_shown(file: &ChangedFile) -> Result<(), Error> {
    if read(&file.path)? == file.text {
        return Ok(());
    }
    let path = plain(&file.path.display().to_string());
    Err(Error::new(format!("{path} changed after it was shown; it is not signed: try again")))
}

/// Shows a change, and asks whether to sign it. A change that cannot be shown is not signed.
fn ask(file: &ChangedFile, key: &SecretKey) -> Result<Answer, Error> {
    let path = plain(&file.path.display().to_string());
    let question = format!("sign {path} with {}? [y]es, [n]o, [a]ll, [q]uit", key.public().fingerprint());
    let mut stderr = anstream::stderr().lock();
    let asked = writeln!(stderr, "{}\n{question}", shown(file)).and_then(|()| stderr.flush());
    asked.map_err(|error| Error::new(format!("the change could not be shown, so it is not signed: {error}")))?;
    drop(stderr);
    answer()
}

/// Finds the files of a tree that `graph verify` refuses. Returns the number of files that cannot be read, after an error for each.
fn find(directory: &Path, key: &SecretKey, changed: &mut Vec<ChangedFile>) -> Result<usize, Error> {
    if !directory.is_dir() {
        let path = directory.display();
        return Err(Error::new(format!("{path} is not a directory; with `--changed`, name directories of graphs")));
    }
    let keys = directory.join("keys");
    let (ring, rejected, _) = KeyRing::load(&[&keys]);
    for key in &rejected {
        err!("warning: {} is refused as a trusted key: {}", key.path.display(), key.error);
    }
    refuse_revoked(&ring, key)?;
    let own = key.public().fingerprint();
    if let Err(error) = ring.signer(&own) {
        // Its signatures would be refused again.
        return Err(match error {
            SignatureError::Untrusted(_) => Error::new(format!(
                "{own}, your key, is not trusted in {}; trust it first: `graph keys trust --keys {}`",
                keys.display(),
                keys.display()
            )),
            other => Error::new(format!("{own}, your key, cannot be used in {}: {other}", keys.display())),
        });
    }
    let walk = find_signed(directory);
    if let Some((path, error)) = walk.unreadable.first() {
        return Err(Error::file("read", path, error));
    }
    let mut problems = 0;
    for path in walk.files {
        match examine(path, &ring) {
            Ok(None) => {}
            Ok(Some(file)) => changed.push(file),
            Err(error) => {
                err!("error: {error}");
                problems += 1;
            }
        }
    }
    Ok(problems)
}

/// Returns a file if `graph verify` refuses it.
fn examine(path: PathBuf, ring: &KeyRing) -> Result<Option<ChangedFile>, Error> {
    if std::fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink()) {
        // A signature would replace the link by a file.
        return Err(Error::new(format!(
            "{} is a link, and is not signed; sign the file that it leads to",
            path.display()
        )));
    }
    let text = read(&path)?;
    let kind = ItemKind::of(&path.to_string_lossy(), &text);
    let Err(reason) = verify(kind, &normalise(&text), ring) else { return Ok(None) };
    let signed = committed(&path).filter(|text| verify(kind, text, ring).is_ok());
    Ok(Some(ChangedFile { path, text, reason, signed }))
}

/// Returns the text that the last commit of a git repository holds for a file.
fn committed(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).ok()?;
    let mut git = Command::new("git");
    // `cat-file` shows the stored bytes without filters, and nothing is fetched: no program that the repository configures runs.
    git.args(["-c", "protocol.allow=never", "cat-file", "blob"])
        .env("GIT_NO_LAZY_FETCH", "1")
        .env("GIT_TERMINAL_PROMPT", "0");
    git.arg(format!("HEAD:./{}", path.file_name()?.to_str()?));
    git.current_dir(path.parent()?).stdin(Stdio::null()).stderr(Stdio::null());
    let shown = git.output().ok().filter(|output| output.status.success())?;
    String::from_utf8(shown.stdout).ok().map(|text| normalise(&text).into_owned())
}

/// Describes a changed file: why it is refused, and its lines, with what changed since the last committed and signed text.
fn shown(file: &ChangedFile) -> String {
    let path = plain(&file.path.display().to_string());
    let kind = ItemKind::of(&file.path.to_string_lossy(), &file.text);
    let text = normalise(&file.text);
    let content = content(kind, &text);
    let mut lines = vec![format!("{path}: {}", file.reason)];
    match file.signed.as_deref().map(|signed| self::content(kind, signed)) {
        None => {
            lines.push("no commit holds a signed text of it, so all of it is shown".to_owned());
            lines.extend(content.lines().map(|line| coloured(ChangeTag::Insert, line)));
        }
        Some(signed) if signed == content => {
            lines.push("nothing changed below the signature line since the last commit".to_owned());
        }
        Some(signed) => {
            lines.push(format!("--- {path} (signed, as in the last commit)\n+++ {path}"));
            for hunk in TextDiff::configure()
                .timeout(PATIENCE)
                .diff_lines(signed, content)
                .unified_diff()
                .context_radius(CONTEXT)
                .iter_hunks()
            {
                lines.push(hunk.header().to_string());
                let line = |line: &str| line.strip_suffix('\n').unwrap_or(line).to_owned();
                lines.extend(hunk.iter_changes().map(|change| coloured(change.tag(), &line(change.value()))));
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Returns a text without its signature line.
fn content(kind: ItemKind, text: &str) -> &str {
    open(kind, text).map_or(text, |opened| opened.content)
}

/// Returns a line of a difference, with its colour.
fn coloured(tag: ChangeTag, line: &str) -> String {
    let seen = plain(line);
    match tag {
        ChangeTag::Equal => format!(" {seen}"),
        ChangeTag::Delete => format!("\u{1b}[31m-{seen}\u{1b}[0m"),
        ChangeTag::Insert => format!("\u{1b}[32m+{seen}\u{1b}[0m"),
    }
}

/// Reads an answer.
///
/// # Errors
///
/// If stdin ends before one is given.
fn answer() -> Result<Answer, Error> {
    loop {
        let mut line = String::new();
        if io::stdin().read_line(&mut line)? == 0 {
            return Err(Error::new("nobody answered; sign without a question by `--yes`"));
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(Answer::Yes),
            "n" | "no" | "" => return Ok(Answer::No),
            "a" | "all" => return Ok(Answer::All),
            "q" | "quit" => return Ok(Answer::Quit),
            _ => err!("answer y, n, a or q"),
        }
    }
}
