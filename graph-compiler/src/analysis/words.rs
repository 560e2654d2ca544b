//! The words that a value can still be where a condition has looked at it: behind `{ path: inputs.kind, value: gift }` it is `gift`, and
//! behind the edge after that one it is any other word.
//!
//! A fact about a word is a path with one more segment, so that it is lost and carried over to copies as other facts about the value are.
//! It says nothing of null.

use graph_definition::definition::{RouteDefinition, TestDefinition};
use graph_model::condition::Condition;
use graph_model::operator::Operator;
use graph_model::path::Path;

use super::guards;

/// How many edges a route may have so that the words of the others are known to be left out behind one: each edge has a fact for each of
/// them.
const MOST_EDGES: usize = 64;

/// Returns the path that stands for the fact that the value at a path is one of these words. No path of a graph has such a segment.
fn is_one_of(path: &Path, words: &[&str]) -> Path {
    marked(path, '=', &words.join("\0"))
}

/// Returns the path that stands for the fact that the value at a path is not a word.
pub(super) fn is_not(path: &Path, word: &str) -> Path {
    marked(path, '!', word)
}

fn marked(path: &Path, mark: char, word: &str) -> Path {
    let mut marked = path.clone();
    marked.segments.push(format!("\0{mark}{word}"));
    marked
}

/// Returns the path and the words of a fact that the value at a path is one of these words.
pub(super) fn read_one_of(marked: &Path) -> Option<(Path, impl Iterator<Item = &str>)> {
    let (last, segments) = marked.segments.split_last()?;
    let words = last.strip_prefix("\0=")?;
    Some((Path { root: marked.root, segments: segments.to_vec() }, words.split('\0')))
}

/// Returns the facts about words that hold if a condition of a route holds, or if it does not.
pub(super) fn proven(route: &RouteDefinition, condition: &Condition<TestDefinition>, holds: bool) -> Vec<Path> {
    let mut found = Vec::new();
    for (test, holds) in guards::decided(condition, holds) {
        let (path, Some(listed)) = (&test.path.value, listed(test)) else { continue };
        if holds == (test.operator == Operator::Ne) {
            found.extend(listed.iter().map(|word| is_not(path, word)));
            continue;
        }
        found.push(is_one_of(path, &listed));
        let others = of_route(route, path).into_iter().filter(|word| !listed.contains(word));
        found.extend(others.map(|word| is_not(path, word)));
    }
    found
}

/// Returns the facts that hold behind the edge of a route by a value that has a word.
pub(super) fn routed(route: &RouteDefinition, path: &Path, word: &str) -> Vec<Path> {
    let others = of_route(route, path).into_iter().filter(|other| *other != word);
    others.map(|other| is_not(path, other)).chain([is_one_of(path, &[word])]).collect()
}

/// Returns the words with which a comparison compares, if it is one with words.
fn listed(test: &TestDefinition) -> Option<Vec<&str>> {
    match test.operator {
        Operator::Eq | Operator::Ne => Some(vec![test.value.value.as_str()?]),
        Operator::In => test.value.value.as_array()?.iter().map(|word| word.as_str()).collect(),
        _ => None,
    }
}

/// Returns the words with which a route compares the value at a path.
fn of_route<'d>(route: &'d RouteDefinition, path: &Path) -> Vec<&'d str> {
    let mut words = Vec::new();
    match route {
        RouteDefinition::By(by) if by.to.len() <= MOST_EDGES => {
            words.extend(by.to.iter().map(|(word, _)| word.value.as_str()));
        }
        RouteDefinition::First(list) | RouteDefinition::All(list) if list.edges.len() <= MOST_EDGES => {
            for edge in &list.edges {
                edge.when.tests(&mut |test| {
                    if test.path.value == *path {
                        words.extend(listed(test).into_iter().flatten());
                    }
                });
            }
        }
        _ => {}
    }
    words
}
