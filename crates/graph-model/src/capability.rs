//! Capabilities, which actions need, such as `rye.execute.tool.rye.bash`, and the patterns that grant them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{GraphId, ItemId};
use crate::program::{ItemType, Verb};

/// The right that an action needs: `rye.<primary>.<item type>.<item id with dots>` (R169).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Capability(String);

impl Capability {
    /// The capability to do `verb` with the item `id` of type `item`; without an id, with items that are yet to be found.
    pub fn new(verb: Verb, item: ItemType, id: Option<&ItemId>) -> Self {
        let (verb, item) = (verb.name(), item.name());
        Self(match id {
            Some(id) => format!("rye.{verb}.{item}.{}", id.dotted()),
            None => format!("rye.{verb}.{item}"),
        })
    }

    /// The capability to send a signal to runs of a graph: `rye.signal.<graph id with dots>.<signal>`.
    pub fn signal(graph: &GraphId, name: &str) -> Self {
        Self(format!("rye.signal.{}.{name}", graph.dotted()))
    }

    /// Reads a capability; `None` if the text is not a capability, such as a pattern that grants several.
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        (text.starts_with("rye.") && text.chars().all(allowed)).then(|| Self(text.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pattern that grants capabilities: a capability itself, or one with `*`, `?`, `[…]` or `[!…]` in it (R170).
///
/// `*` also stands for dots. Case matters. A pattern without wildcards grants exactly itself.
///
/// ```
/// # use graph_model::capability as graph_runtime;
/// use graph_runtime::Pattern;
///
/// let all_of_shop = Pattern::new("rye.execute.tool.shop.*")?;
/// assert!(all_of_shop.covers(&Pattern::new("rye.execute.tool.shop.stock.reserve")?));
/// assert!(!all_of_shop.covers(&Pattern::new("rye.execute.tool.payments.charge")?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// Why a text cannot grant anything.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is empty.
    #[error("a capability pattern cannot be empty")]
    Empty,
    /// It begins with neither `rye.` nor a `*`, and so would never match.
    #[error(
        "`{0}` grants nothing: a capability begins with `rye.`, as in `rye.execute.tool.rye.bash` or `rye.execute.tool.*`"
    )]
    NotACapability(String),
    /// It holds a space or another character that no capability has.
    #[error("a capability pattern cannot contain {0:?}")]
    Character(char),
}

impl Pattern {
    /// Takes `text` as a pattern.
    ///
    /// # Errors
    ///
    /// If the text could never match a capability.
    pub fn new(text: impl Into<String>) -> Result<Self, PatternError> {
        let text = text.into();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '*' | '?' | '[' | ']' | '!');
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if let Some(character) = text.chars().find(|&c| !allowed(c)) {
            return Err(PatternError::Character(character));
        }
        if !text.starts_with("rye.") && !text.starts_with('*') {
            return Err(PatternError::NotACapability(text));
        }
        Ok(Self(text))
    }

    /// Whether the pattern grants `capability`.
    pub fn grants(&self, capability: &Capability) -> bool {
        matches(self.0.as_bytes(), capability.0.as_bytes())
    }

    /// Whether the pattern is known to grant everything that `other` grants. A pattern with wildcards other than `*`
    /// covers only an equal one.
    pub fn covers(&self, other: &Self) -> bool {
        // Only a `*` of this pattern can match a `*` of the other, and it matches everything that the other may stand for.
        let plain = |pattern: &Self| !pattern.0.contains(['?', '[', ']', '!']);
        self == other || (plain(self) && plain(other) && matches(self.0.as_bytes(), other.0.as_bytes()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Pattern {
    type Error = PatternError;

    fn try_from(text: String) -> Result<Self, PatternError> {
        Self::new(text)
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

/// Matches as `fnmatch` does, without recursion: on a mismatch, the last `*` takes one more byte.
fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            p += 1;
            star = Some((p, t));
        } else if let Some(next) = matches_one(pattern, p, text[t]) {
            p = next;
            t += 1;
        } else if let Some((after, taken)) = star {
            p = after;
            t = taken + 1;
            star = Some((after, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// Matches one byte against the element of the pattern at `at`; returns where the next element begins.
fn matches_one(pattern: &[u8], at: usize, byte: u8) -> Option<usize> {
    match pattern.get(at)? {
        b'?' => Some(at + 1),
        b'[' => match set(pattern, at + 1) {
            Some((members, negated, next)) => (in_set(members, byte) != negated).then_some(next),
            None => (byte == b'[').then_some(at + 1),
        },
        &other => (other == byte).then_some(at + 1),
    }
}

/// Reads `[…]` or `[!…]` whose inside begins at `at`; a `]` right at its beginning is a member.
fn set(pattern: &[u8], at: usize) -> Option<(&[u8], bool, usize)> {
    let negated = pattern.get(at) == Some(&b'!');
    let start = at + usize::from(negated);
    let length = pattern.get(start + 1..)?.iter().position(|&byte| byte == b']')? + 1;
    Some((&pattern[start..start + length], negated, start + length + 1))
}

fn in_set(members: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < members.len() {
        if let (Some(b'-'), Some(&last)) = (members.get(at + 1), members.get(at + 2)) {
            if (members[at]..=last).contains(&byte) {
                return true;
            }
            at += 3;
        } else {
            if members[at] == byte {
                return true;
            }
            at += 1;
        }
    }
    false
}

/// The rights of a caller: patterns, any of which grants.
///
/// ```
/// # use graph_model::capability as graph_runtime;
/// use graph_runtime::{Grants, Pattern};
///
/// let runtime = Grants::new([Pattern::new("rye.execute.tool.*")?]);
/// let order = Grants::new([Pattern::new("rye.execute.tool.shop.*")?, Pattern::new("rye.sign.*")?]);
/// assert_eq!(order.narrowed(&runtime).patterns(), [Pattern::new("rye.execute.tool.shop.*")?]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Grants(Vec<Pattern>);

impl Grants {
    /// Collects patterns; without a pattern, nothing is granted.
    pub fn new(patterns: impl IntoIterator<Item = Pattern>) -> Self {
        Self(patterns.into_iter().collect())
    }

    /// Adds a pattern.
    pub fn add(&mut self, pattern: Pattern) {
        self.0.push(pattern);
    }

    /// Whether any pattern grants `capability`; without patterns everything is denied (R171).
    pub fn allow(&self, capability: &Capability) -> bool {
        self.0.iter().any(|pattern| pattern.grants(capability))
    }

    /// Returns the rights that both grant, as far as patterns can express them: for each pair of patterns, the one that
    /// the other covers. The result grants nothing that one of the two does not grant.
    #[must_use]
    pub fn narrowed(&self, other: &Self) -> Self {
        let mut both: Vec<Pattern> = Vec::new();
        for one in &self.0 {
            for two in &other.0 {
                let narrower = if two.covers(one) {
                    one
                } else if one.covers(two) {
                    two
                } else {
                    continue;
                };
                if !both.contains(narrower) {
                    both.push(narrower.clone());
                }
            }
        }
        Self(both)
    }

    /// Returns the patterns, in order.
    pub fn patterns(&self) -> &[Pattern] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants(pattern: &str, id: &str) -> bool {
        let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(&ItemId::new(id).unwrap()));
        Pattern::new(pattern).unwrap().grants(&capability)
    }

    #[test]
    fn patterns_match_as_fnmatch_does() {
        for (pattern, id, expected) in [
            ("rye.execute.tool.rye.bash", "rye/bash", true),
            ("rye.execute.tool.rye.bash", "rye/bash/x", false),
            ("rye.execute.tool.*", "rye/bash/x", true),
            ("rye.execute.tool.*", "a", true),
            ("rye.*.bash", "rye/bash", true),
            ("rye.*bash*sh", "rye/bash", false),
            ("rye.execute.tool.rye.bas?", "rye/bash", true),
            ("rye.execute.tool.rye.[a-c]ash", "rye/bash", true),
            ("rye.execute.tool.rye.[!a-c]ash", "rye/bash", false),
            ("rye.execute.tool.rye.[!xy]ash", "rye/bash", true),
            ("rye.execute.tool.rye.[b", "rye/b", false),
            ("rye.EXECUTE.tool.*", "a", false),
            ("rye.execute.tool", "a", false),
            ("rye.fetch.tool.*", "a", false),
            ("*", "a", true),
        ] {
            assert_eq!(grants(pattern, id), expected, "{pattern} {id}");
        }
    }

    #[test]
    fn many_stars_do_not_take_exponential_time() {
        let pattern = format!("rye.{}x", "*a".repeat(60));
        assert!(!grants(&pattern, &"a".repeat(150)));
    }

    #[test]
    fn texts_that_could_never_grant_are_refused() {
        assert_eq!(Pattern::new(""), Err(PatternError::Empty));
        assert!(matches!(Pattern::new("execute.tool.*"), Err(PatternError::NotACapability(_))));
        assert_eq!(Pattern::new("rye.execute tool"), Err(PatternError::Character(' ')));
    }

    #[test]
    fn narrowing_keeps_the_narrower_pattern_of_each_pair() {
        let grants = |texts: &[&str]| Grants::new(texts.iter().map(|text| Pattern::new(*text).unwrap()));
        let both = |one: &[&str], two: &[&str]| {
            let both = grants(one).narrowed(&grants(two));
            both.patterns().iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let (tools, bash) = ("rye.execute.tool.*", "rye.execute.tool.rye.bash");
        assert_eq!(both(&[tools], &[bash]), bash);
        assert_eq!(both(&[bash], &[tools, "rye.fetch.*"]), bash);
        assert_eq!(both(&["rye.*"], &[tools]), tools);
        assert_eq!(both(&[tools], &["rye.fetch.*"]), "");
        assert_eq!(both(&["rye.execute.tool.?"], &["rye.execute.tool.*"]), "", "said of equal ones only");
        assert_eq!(both(&["rye.execute.tool.?"], &["rye.execute.tool.?"]), "rye.execute.tool.?");
    }

    #[test]
    fn no_grants_deny_everything() {
        let capability = Capability::new(Verb::Execute, ItemType::Tool, Some(&ItemId::new("rye/bash").unwrap()));
        assert!(!Grants::default().allow(&capability));
        assert!(Grants::new([Pattern::new("rye.execute.tool.*").unwrap()]).allow(&capability));
    }
}
