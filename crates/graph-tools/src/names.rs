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
        let plain: String = id
            .strip_prefix("rye/")
            .filter(|rest| rest.starts_with("orchestrate/"))
            .unwrap_or(id)
            .chars()
            .map(|letter| if letter.is_ascii_alphanumeric() || letter == '-' { letter } else { '_' })
            .collect();
        let mut name: String = plain.chars().take(MOST).collect();
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
