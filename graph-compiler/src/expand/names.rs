//! Names of the graph as identifiers of Rust.

use graph_definition::hash::HashSet;
use proc_macro2::{Ident, Span};

/// The identifiers that are taken in one scope.
pub(super) struct Scope(HashSet<String>);

impl Scope {
    pub(super) fn new() -> Self {
        Self(HashSet::default())
    }

    pub(super) fn with(taken: impl IntoIterator<Item = String>) -> Self {
        Self(taken.into_iter().collect())
    }

    /// Claims `wanted`, or `wanted2`, `wanted3` … if that is taken.
    pub(super) fn claim(&mut self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut next = 2;
        while !self.0.insert(name.trim_start_matches("r#").to_owned()) {
            name = format!(
                "{}{}{next}",
                wanted.trim_start_matches("r#"),
                if wanted.ends_with(|c: char| c.is_ascii_digit()) { "_" } else { "" }
            );
            next += 1;
        }
        name
    }
}

/// The names that a module at the root of a crate must not have: those of the crates that every program has, and of the
/// built-in types, which it would hide from all code around it; and that of the module of the contracts.
const CRATES_AND_TYPES: [&str; 27] = [
    "alloc",
    "bool",
    "char",
    "core",
    "f128",
    "f16",
    "f32",
    "f64",
    "graph_compiler",
    "graph_runtime",
    "i128",
    "i16",
    "i32",
    "i64",
    "i8",
    "isize",
    "proc_macro",
    "std",
    "str",
    "test",
    "tools",
    "u128",
    "u16",
    "u32",
    "u64",
    "u8",
    "usize",
];
/// The names that a machine must not have: the types, traits and variants that Rust code uses without importing them.
const PRELUDE: [&str; 34] = [
    "AsMut",
    "AsRef",
    "Box",
    "Clone",
    "Copy",
    "Debug",
    "Default",
    "DoubleEndedIterator",
    "Drop",
    "Eq",
    "Err",
    "ExactSizeIterator",
    "Extend",
    "Fn",
    "FnMut",
    "FnOnce",
    "From",
    "FromIterator",
    "Hash",
    "Into",
    "IntoIterator",
    "Iterator",
    "None",
    "Ok",
    "Option",
    "Ord",
    "PartialEq",
    "PartialOrd",
    "Result",
    "Some",
    "String",
    "ToOwned",
    "ToString",
    "Vec",
];

/// Returns the name of the module that a file or directory called `stem` becomes.
pub(super) fn module(stem: &str) -> Ident {
    let name = snake_case(stem);
    if CRATES_AND_TYPES.iter().any(|taken| name == taken) { identifier(&format!("{name}_graph")) } else { name }
}

/// Returns the name of the machine of the module `name`.
pub(super) fn machine(name: &str) -> Ident {
    let name = pascal_case(name.trim_start_matches("r#"));
    if PRELUDE.iter().any(|taken| name == taken) { identifier(&format!("{name}Graph")) } else { name }
}

/// Creates an identifier; a name that [`Scope::claim`] returned may begin with `r#`.
pub(crate) fn identifier(name: &str) -> Ident {
    match name.strip_prefix("r#") {
        Some(raw) => Ident::new_raw(raw, Span::call_site()),
        None => Ident::new(name, Span::call_site()),
    }
}

/// Returns a text as an identifier in snake case: `my-tool/doIt` becomes `my_tool_do_it`, `type` becomes `r#type`.
pub(super) fn snake_case(text: &str) -> Ident {
    identifier(&escape(words(text).join("_").to_lowercase()))
}

/// As [`snake_case`], but as text for a [`Scope`] to claim.
pub(super) fn snake_text(text: &str) -> String {
    escape(words(text).join("_").to_lowercase())
}

/// Returns a text as an identifier in pascal case: `my-tool/doIt` becomes `MyToolDoIt`.
pub(super) fn pascal_case(text: &str) -> Ident {
    identifier(&pascal_text(text))
}

/// As [`pascal_case`], but as text for a [`Scope`] to claim.
pub(super) fn pascal_text(text: &str) -> String {
    let capital = |word: &String| {
        let mut characters = word.chars();
        let first = characters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(characters.map(|other| other.to_ascii_lowercase())).collect::<String>()
    };
    escape(words(text).iter().map(capital).collect())
}

/// Splits a text at everything that is neither a letter nor a digit, and between a small letter and a capital.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            if character.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
                words.push(String::new());
            }
            words.last_mut().expect("there is always a word").push(character);
        } else {
            words.push(String::new());
        }
        before = character;
    }
    words.retain(|word| !word.is_empty());
    words
}

fn escape(name: String) -> String {
    if name.is_empty() {
        return "_unnamed".to_owned();
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return format!("_{name}");
    }
    match name.as_str() {
        "self" | "super" | "crate" | "Self" => format!("{name}_"),
        _ if syn::parse_str::<Ident>(&name).is_err() => format!("r#{name}"),
        _ => name,
    }
}

/// Returns the names of a graph's module and of its machine. `name` is the identifier that
/// [`module_name`](super::module_name) returns.
pub(super) fn idents(name: &str) -> (Ident, Ident) {
    (identifier(name), machine(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_an_identifier() {
        for (text, snake, pascal) in [
            ("count_files", "count_files", "CountFiles"),
            ("my-tool/doIt", "my_tool_do_it", "MyToolDoIt"),
            ("type", "r#type", "Type"),
            ("self", "self_", "Self_"),
            ("2nd try", "_2nd_try", "_2ndTry"),
            ("é", "_unnamed", "_unnamed"),
            ("HTTPStatus", "httpstatus", "Httpstatus"),
            ("yes", "yes", "Yes"),
            ("async", "r#async", "Async"),
        ] {
            assert_eq!(snake_case(text).to_string(), snake);
            assert_eq!(pascal_case(text).to_string(), pascal);
        }
    }

    #[test]
    fn modules_and_machines_hide_nothing_of_the_language() {
        for (stem, module_name, machine_name) in [
            ("std", "std_graph", "StdGraph"),
            ("Core", "core_graph", "CoreGraph"),
            ("graph-runtime", "graph_runtime_graph", "GraphRuntimeGraph"),
            ("u8", "u8_graph", "U8Graph"),
            ("tools", "tools_graph", "ToolsGraph"),
            ("result", "result", "ResultGraph"),
            ("order", "order", "Order"),
        ] {
            let module = module(stem).to_string();
            assert_eq!((module.as_str(), machine(&module).to_string().as_str()), (module_name, machine_name));
        }
    }

    #[test]
    fn a_taken_name_gets_a_number() {
        let mut scope = Scope::with(["state".to_owned()]);
        assert_eq!(scope.claim("state"), "state2");
        assert_eq!(scope.claim("state"), "state3");
        assert_eq!(scope.claim("r#type"), "r#type");
        assert_eq!(scope.claim("r#type"), "type2");
        assert_eq!(scope.claim("a1"), "a1");
        assert_eq!(scope.claim("a1"), "a1_2");
    }
}
