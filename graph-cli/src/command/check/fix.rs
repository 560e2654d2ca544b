//! `graph check --fix`: apply the fixes that are certain.
//!
//! A fix is kept only if a check of the fixed text reports nothing new. Nothing is signed: a changed file is not trusted
//! until a person has reviewed and signed it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph_compiler::diagnostic::{Diagnostic, Fix, SourcePlace};
use graph_compiler::fix::apply;
use graph_compiler::source::SourceFile;

use super::findings::{CheckFinding, Findings, Trees};
use crate::command::{read, replace};
use crate::outcome::Error;

/// The result of `--fix`.
#[derive(Default)]
pub(super) struct Fixed {
    files: Vec<Changed>,
    /// A message for each file that could have been fixed and was not, with the reason.
    left: Vec<String>,
}

/// A file that was changed.
struct Changed {
    /// The text before the change.
    source: Arc<SourceFile>,
    fixes: Vec<Fix>,
}

impl Fixed {
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty() && self.left.is_empty()
    }

    /// Returns the changes, each with its place in the text before.
    pub(super) fn changes(&self) -> impl Iterator<Item = (SourcePlace, &Fix)> {
        let of = |changed: &Changed, fix: &Fix| SourcePlace::new(&changed.source, fix.span.clone());
        self.files.iter().flat_map(move |changed| changed.fixes.iter().map(move |fix| (of(changed, fix), fix)))
    }

    /// Describes the changes in lines for people.
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

/// Applies the certain fixes to the files at and below `given`.
///
/// # Errors
///
/// If a file cannot be written. Each file is replaced as a whole: the files before it have changed by then, this one has not.
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

/// Whether a file is one of the `given` paths or below one of them, after links are resolved.
fn is_given(file: &Path, given: &[PathBuf]) -> bool {
    file.canonicalize().is_ok_and(|file| given.iter().any(|given| file.starts_with(given)))
}

/// Returns the fixes that cause no new finding: all of them, or if together they cause one, as many as can be added one by one.
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

/// Returns the graphs with mistakes that are always errors. Lints do not run on such graphs.
fn broken(findings: &Findings) -> BTreeSet<&str> {
    let is_error = |it: &Diagnostic| it.code.lint.is_none() && !it.code.is_of_trust();
    let broken = findings.found.iter().filter(|finding| is_error(&finding.diagnostic));
    broken.flat_map(|finding| finding.graphs.iter().map(String::as_str)).collect()
}

/// Counts the findings by code, file and message, regardless of their position. Findings about signatures do not count,
/// because a changed file is no longer signed. Lints that are only about graphs in `broken` do not count, because lints did
/// not run on these before.
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

/// Writes the changed text, unless the file no longer holds the text that was checked. The line endings stay as they are.
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
