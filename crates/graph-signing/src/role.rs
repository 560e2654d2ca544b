//! Roles, in which the owners of keys answer.

const MOST_CHARACTERS: usize = 64;

/// Whether `text` is the name of a role: `[a-z][a-z0-9_-]*`, at most 64 characters.
///
/// ```
/// # use graph_signing::is_role;
/// assert!(is_role("refunds"));
/// assert!(!is_role("Refunds"));
/// ```
pub fn is_role(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-');
    text.len() <= MOST_CHARACTERS
        && text.starts_with(|first: char| first.is_ascii_lowercase())
        && text.bytes().all(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_a_short_word_in_lower_case() {
        let longest = "a".repeat(64);
        for role in ["a", "refunds", "on-call", "level_2", "a-", &longest] {
            assert!(is_role(role), "{role}");
        }
        let too_long = "a".repeat(65);
        for text in ["", "A", "rEfunds", "2nd", "-a", "_a", "a b", " a", "a\n", "a.b", "é", "aé", "\u{430}", &too_long]
        {
            assert!(!is_role(text), "{text}");
        }
    }
}
