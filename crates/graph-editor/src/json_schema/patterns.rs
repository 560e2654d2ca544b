//! The small languages of the format as regular expressions.
//!
//! They use no look-around and no Unicode classes, so that every editor reads them in the same way. Where they cannot be
//! exact, they accept too much: the compiler has the last word.

use graph_model::path::Root;
use graph_model::program::Event;

/// One character of a part of a path. All characters beyond ASCII are accepted.
const PART: &str = r##"[^\x00-"%-,.;-?\[-^`{-\x7f]"##;

/// A role of those who answer interrupts.
pub(super) const ROLE: &str = "^[a-z][a-z0-9_-]*$";

/// The names that have no parts and cannot be used in conditions.
const TIMES: [&str; 2] = ["_now", "_timestamp"];

/// The names with which paths may begin at a place.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum PathScope {
    /// The namespaces.
    Node,
    /// The namespaces, and the item of a foreach under any name.
    Item,
    /// The data that a hook of the event receives, the inputs and the time.
    Hook(Event),
}

impl PathScope {
    /// Returns all scopes.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [Self::Node, Self::Item].into_iter().chain(Event::TABLE.map(|(event, ..)| Self::Hook(event)))
    }

    /// Returns the name of the definition of `what` for this scope.
    pub(super) fn definition(self, what: &str) -> String {
        match self {
            Self::Node => what.to_owned(),
            Self::Item => format!("{what}_of_item"),
            Self::Hook(event) => format!("{what}_of_{}", event.name()),
        }
    }

    /// Returns the patterns of the names with which paths begin. `arguments` are the names of the elements of lists in branches;
    /// `None` if they are not known.
    fn roots(self, arguments: Option<&[String]>) -> Vec<&str> {
        match (self, arguments) {
            (Self::Node, Some(arguments)) => {
                let own = Root::TABLE.map(|(_, name)| name).into_iter().filter(|name| !TIMES.contains(name));
                own.chain(arguments.iter().map(String::as_str)).collect()
            }
            (Self::Node | Self::Item, _) => vec!["[A-Za-z_][A-Za-z0-9_]*"],
            (Self::Hook(event), _) => event.names().iter().copied().chain([Root::Inputs.name()]).collect(),
        }
    }

    /// Returns the pattern of a condition's path, which cannot read the time (R87).
    pub(super) fn path_of_condition(self, arguments: Option<&[String]>) -> String {
        format!("^{}$", path(&self.roots(arguments)))
    }

    /// Returns the pattern of a string in which every `${…}` holds paths (R63, R64).
    pub(super) fn template(self, arguments: Option<&[String]>) -> String {
        let path = format!("({}|{})", path(&self.roots(arguments)), TIMES.join("|"));
        let expression = format!(r"\$\{{\s*{path}\s*(\|\|\s*{path}\s*)*\}}");
        // `$${` stands for the characters `${`; a dollar sign before anything else is literal.
        format!(r"^([^$]|\$+[^${{]|\$\$+\{{|{expression})*\$*$")
    }
}

/// Returns the pattern of paths with these roots, without anchors.
fn path(roots: &[&str]) -> String {
    format!(r"({})(\.{PART}+|\[-?[0-9]+\])*", roots.join("|"))
}

/// A string that is a single `${…}`, which keeps the type of the value that it reads (R65).
pub(super) const WHOLE: &str = r"^\$\{[^}]*\}\n?$";

/// A string with an expression in it.
pub(super) const WITH_EXPRESSION: &str = r"\$\{[^}]*\}";

/// A name of a node: no control characters.
pub(super) const NAME: &str = r"^[^\x00-\x1f\x7f-\x9f]+$";

/// A state key that is not reserved for the engine. `inputs` is reserved too; the schema refuses it separately.
pub(super) const KEY: &str = r"^[^_\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f]*$";

/// An id of an item or graph.
pub(super) const ID: &str = "^[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*$";

/// An id with a template in it.
pub(super) const COMPUTED_ID: &str =
    r"^([A-Za-z0-9_/-]|(\$\{|\{input:)[^}]*\})*(\$\{|\{input:)[^}]*\}([A-Za-z0-9_/-]|(\$\{|\{input:)[^}]*\})*\n?$";

/// A graph's category; slashes at its ends are removed.
pub(super) const CATEGORY: &str = "^/*([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*/*)?$";

/// An amount of US dollars above zero.
pub(super) const SPEND: &str = r"^([0-9]*[1-9][0-9]*(\.[0-9]{1,6})?|[0-9]+\.[0-9]*[1-9][0-9]*) USD$";

/// A pattern of capabilities.
pub(super) const PERMISSION: &str = r"^(rye\.|\*)[A-Za-z0-9._*?\[\]!-]*$";

/// The name of an environment variable.
pub(super) const VARIABLE: &str = r"^[^=\x00]+$";

/// The name of the item of a foreach.
pub(super) const IDENTIFIER: &str = "^[A-Za-z_][A-Za-z0-9_]*$";

#[cfg(test)]
mod tests {
    use graph_model::capability::Pattern;
    use graph_model::name::{ItemId, NodeName};
    use graph_model::path::Path;
    use graph_model::template::Template;
    use proptest::prelude::*;
    use regex::Regex;

    use super::*;

    #[test]
    fn lengths_of_time_match_their_pattern_as_the_reader_reads_them() {
        let pattern = Regex::new(&graph_model::duration::pattern()).unwrap();
        for text in
            ["250ms", "1.5s", "1h30m", "1d2h3m4s5ms", "007s", "", "5", "30m1h", "1s1s", "1 s", ".5s", "-1s", "s"]
        {
            assert_eq!(pattern.is_match(text), graph_model::duration::parse(text).is_ok(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn patterns_match_what_the_readers_read(
            text in r"(\$|\{|\}|\|\|| |state|inputs|result|\.|x|0|\[|\]|-|_now|é|rye|/|\*){0,8}",
        ) {
            let is_match = |pattern: &str| Regex::new(pattern).unwrap().is_match(&text);
            prop_assert_eq!(is_match(&PathScope::Node.template(Some(&[]))), Template::parse(&text).is_ok());
            let path = Path::parse(&text).is_ok_and(|path| !matches!(path.root, Root::Now | Root::Timestamp));
            prop_assert_eq!(is_match(&PathScope::Node.path_of_condition(Some(&[]))), path);
            prop_assert_eq!(is_match(ID), ItemId::new(text.clone()).is_ok());
            prop_assert_eq!(is_match(NAME), NodeName::new(text.clone()).is_ok());
            prop_assert_eq!(is_match(PERMISSION), Pattern::new(text.clone()).is_ok());
            if let Ok(Template::Whole(_)) = Template::parse(&text) {
                prop_assert!(is_match(WHOLE));
            }
        }
    }
}
