//! The names of tools, as models and their clients accept them.

/// The maximum length of a name.
const MOST: usize = 64;

/// Returns a name for each id, in their order: letters, digits, `_` and `-`, at most 64. The names differ from each other and from those
/// that are `taken`. The tools for tasks are `orchestrate_spawn` and so on.
///
/// ```
/// use graph_tools::tool_names;
///
/// assert_eq!(tool_names(["shop/charge", "shop_charge", "answer"], &["answer"]), ["shop_charge", "shop_charge_2", "answer_2"]);
/// ```
pub fn tool_names<'i>(ids: impl IntoIterator<Item = &'i str>, taken: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for id in ids {
        let plain =
            plain_tool_name(id.strip_prefix("rye/").filter(|rest| rest.starts_with("orchestrate/")).unwrap_or(id));
        let mut name = plain.clone();
        let mut number = 1;
        while taken.contains(&name.as_str()) || names.contains(&name) {
            number += 1;
            let end = format!("_{number}");
            name = plain.chars().take(MOST - end.len()).chain(end.chars()).collect();
        }
        names.push(name);
    }
    names
}

/// Returns a name of the letters that models accept, of at most the length that they accept. An empty one becomes `_`.
pub fn plain_tool_name(name: &str) -> String {
    let accepted = |letter: char| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' };
    let plain: String = name.chars().take(MOST).map(accepted).collect();
    if plain.is_empty() { "_".to_owned() } else { plain }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_ids_have_different_names_that_models_accept() {
        let long = "x".repeat(100);
        let ids = [
            "shop/charge",
            "shop_charge",
            "answer",
            &long,
            &format!("{long}y"),
            "ä/b",
            "rye/orchestrate/spawn",
            "rye/bash",
        ];
        let names = tool_names(ids, &["answer"]);
        assert_eq!(names[..3], ["shop_charge", "shop_charge_2", "answer_2"]);
        assert_eq!(names[6..], ["orchestrate_spawn", "rye_bash"]);
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
            assert!(!names[..at].contains(name) && name != "answer", "{names:?}");
        }
    }
}
