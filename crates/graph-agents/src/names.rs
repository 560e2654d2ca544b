//! The names of tools, as models accept them.

/// The tool by which a model answers.
pub(crate) const ANSWER: &str = "answer";

/// The maximum length of a name.
const MOST: usize = 64;

/// Returns a name for each id, in their order: different ones, none of which is that of the answer. The tools for tasks are
/// `orchestrate_spawn` and so on.
pub(crate) fn names<'i>(ids: impl IntoIterator<Item = &'i str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for id in ids {
        let plain = plain(id.strip_prefix("rye/").filter(|rest| rest.starts_with("orchestrate/")).unwrap_or(id));
        let mut name = plain.clone();
        let mut number = 1;
        while name == ANSWER || names.contains(&name) {
            number += 1;
            let end = format!("_{number}");
            name = plain.chars().take(MOST - end.len()).chain(end.chars()).collect();
        }
        names.push(name);
    }
    names
}

/// Returns a name of the letters that models accept, of at most the length that they accept. An empty one becomes `_`.
pub(crate) fn plain(name: &str) -> String {
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
        let names = names(ids);
        assert_eq!(names[..3], ["shop_charge", "shop_charge_2", "answer_2"]);
        assert_eq!(names[6..], ["orchestrate_spawn", "rye_bash"]);
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)));
            assert!(!names[..at].contains(name) && name != ANSWER, "{names:?}");
        }
    }
}
