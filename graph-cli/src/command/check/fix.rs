//! `graph check --fix`: making the changes that are certain.
//!
//! A change is kept only if the text with it says nothing new that is wrong. Nothing is signed: what was changed is not
//! trusted until a person has looked at it and signed it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::diagnostic::{Diagnostic, Fix, SourcePlace};
use graph_compiler::fix::apply;
use graph_compiler::source::SourceFile;

use super::findings::{CheckFinding, Findings, Trees};
use crate::command::{read, replace};
use crate::outcome::Error;

/// What was changed.
#[derive(Default)]
pub(super) struct Fixed {
    files: Vec<Changed>,
    /// What could be changed and was not, and why.
    left: Vec<String>,
}

/// A file that was changed.
struct Changed {
    /// The text before.
    source: Arc<SourceFile>,
    fixes: Vec<Fix>,
}

impl Fixed {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left.is_empty()
    }

    /// Returns the changes, each with a place in the text before.
    pub(super) fn changes(&self) -> impl Iterator<Item = (SourcePlace, &Fix)> {
        let of = |changed: &Changed, fix: &Fix| SourcePlace::new(&changed.source, fix.span.clone());
        self.files.iter().flat_map(move |changed| changed.fixes.iter().map(move |fix| (of(changed, fix), fix)))
    }

    /// Says what was changed, for people.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let changes = self.changes().map(|(place, fix)| {
            let (line, column) = place.position().unwrap_or((1, 1));
            let before = place.source.text.get(fix.span.clone()).unwrap_or_default();
            format!("fixed {}:{line}:{column}: `{before}` is `{}` now", place.source.name, fix.text)
        });
        let sign = self.files.iter().map(|changed| {
            let name = &changed.source.name;
            format!("review {name}, then sign it again: `graph sign {name}`")
        });
        changes.chain(self.left.iter().cloned()).chain(sign)
    }
}

/// Makes the certain changes in the files at and below `given`.
///
/// # Errors
///
/// If a file cannot be written. Each file is replaced as a whole, so those before it are changed and it is not.
pub(super) fn fix(trees: &Trees, findings: &Findings, given: &[PathBuf]) -> Result<Fixed, Error> {
    let given: Vec<PathBuf> = given.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let mut candidates: Vec<(Arc<SourceFile>, Vec<&Fix>)> = Vec::new();
    for diagnostic in findings.found.iter().map(|finding| &finding.diagnostic) {
        let Some(fix) = diagnostic.fix.as_ref().filter(|fix| fix.is_certain) else { continue };
        let source = &diagnostic.place.source;
        if !is_given(&source.path, &given) {
            continue;
        }
        match candidates.iter_mut().find(|(known, _)| known.path == source.path) {
            Some((_, fixes)) => fixes.push(fix),
            None => candidates.push((Arc::clone(source), vec![fix])),
        }
    }
    let mut fixed = Fixed::default();
    for (source, fixes) in kept(trees, findings, candidates) {
        let (text, applied) = apply(&source.text, &fixes);
        if applied.is_empty() {
            continue;
        }
        match write(&source, &text)? {
            true => {
                let fixes = applied.into_iter().cloned().collect();
                fixed.files.push(Changed { source, fixes });
            }
            false => fixed.left.push(format!("left {} alone: it was changed meanwhile", source.name)),
        }
    }
    Ok(fixed)
}

/// Whether a file is one of those that were named, or below one of them: the file itself, wherever links lead from.
fn is_given(file: &Path, given: &[PathBuf]) -> bool {
    file.canonicalize().is_ok_and(|file| given.iter().any(|given| file.starts_with(given)))
}

/// Returns the changes after which nothing new is wrong: all together, or as many as can be made one after the other.
fn kept<'f>(
    trees: &Trees,
    findings: &Findings,
    candidates: Vec<(Arc<SourceFile>, Vec<&'f Fix>)>,
) -> Vec<(Arc<SourceFile>, Vec<&'f Fix>)> {
    if candidates.is_empty() || !says_nothing_new(trees, findings, &candidates) {
        let mut kept: Vec<(Arc<SourceFile>, Vec<&Fix>)> = Vec::new();
        for (source, fixes) in candidates {
            kept.push((source, Vec::new()));
            for fix in fixes {
                let last = kept.len() - 1;
                kept[last].1.push(fix);
                if !says_nothing_new(trees, findings, &kept) {
                    kept[last].1.pop();
                }
            }
        }
        return kept;
    }
    candidates
}

fn says_nothing_new(trees: &Trees, before: &Findings, changes: &[(Arc<SourceFile>, Vec<&Fix>)]) -> bool {
    let texts: Vec<Arc<SourceFile>> = changes
        .iter()
        .map(|(source, fixes)| SourceFile::new(&source.path, source.name.as_str(), &apply(&source.text, fixes).0))
        .collect();
    let after = trees.check_with(&texts);
    let broken = broken(before);
    let (before, after) = (tally(before, &BTreeSet::new()), tally(&after, &broken));
    after.iter().all(|(what, number)| before.get(what).is_some_and(|known| known >= number))
}

/// Returns the graphs with mistakes that are always errors. Of those, lints are not asked.
fn broken(findings: &Findings) -> BTreeSet<&str> {
    let is_error = |it: &Diagnostic| it.code.lint.is_none() && !it.code.is_of_trust();
    let broken = findings.found.iter().filter(|finding| is_error(&finding.diagnostic));
    broken.flat_map(|finding| finding.graphs.iter().map(String::as_str)).collect()
}

/// Counts what is said, wherever in a file it stands. That a changed file is not signed any more is no news, nor is what a lint
/// says of a graph that was among the `broken` before.
fn tally<'f>(findings: &'f Findings, broken: &BTreeSet<&str>) -> BTreeMap<(&'static str, &'f str, &'f str), usize> {
    let is_news = |finding: &CheckFinding| match finding.diagnostic.code.lint {
        Some(_) => finding.graphs.iter().any(|graph| !broken.contains(graph.as_str())),
        None => !finding.diagnostic.code.is_of_trust(),
    };
    let mut tally = BTreeMap::new();
    for it in findings.found.iter().filter(|finding| is_news(finding)).map(|finding| &finding.diagnostic) {
        *tally.entry((it.code.id, it.place.source.name.as_str(), it.message.as_str())).or_default() += 1;
    }
    tally
}

/// Writes the changed text, if the file still holds the one that was checked; its line ends stay as they are.
fn write(source: &SourceFile, text: &str) -> Result<bool, Error> {
    let path = source.path.canonicalize().map_err(|error| Error::file("read", &source.path, &error))?;
    let found = read(&path)?;
    if graph_signing::normalise(&found) != source.text {
        return Ok(false);
    }
    let has_crlf = found.contains("\r\n") && found.matches('\n').count() == found.matches("\r\n").count();
    let text = if has_crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
    replace(&path, &text)?;
    Ok(true)
}
