//! The results of tests as JUnit XML, which CI systems read.

use graph_model::character::is_invisible;
use graph_testing::{CaseReport, FileReport};

use super::Counts;

/// Returns the document: a suite for each file, with its cases.
pub(super) fn document(reports: &[FileReport]) -> String {
    let counts = Counts::of(reports);
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    text.push_str(&format!(
        "<testsuites name=\"graph test\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        counts.cases, counts.failed, counts.unreadable
    ));
    reports.iter().for_each(|report| suite(report, &mut text));
    text.push_str("</testsuites>\n");
    text
}

fn suite(report: &FileReport, text: &mut String) {
    let (name, counts) = (escaped(&report.name), Counts::of(std::slice::from_ref(report)));
    text.push_str(&format!(
        "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n",
        counts.cases.max(counts.unreadable),
        counts.failed,
        counts.unreadable
    ));
    match &report.cases {
        Ok(cases) => cases.iter().for_each(|one| case(&name, one, text)),
        Err(mistakes) => {
            text.push_str(&format!("    <testcase classname=\"{name}\" name=\"the file of tests\">\n"));
            for mistake in mistakes {
                let message = escaped(&format!("{}: {}", mistake.location(), mistake.message));
                let code = mistake.code.id;
                text.push_str(&format!("      <error type=\"{code}\" message=\"{message}\"/>\n"));
            }
            text.push_str("    </testcase>\n");
        }
    }
    text.push_str("  </testsuite>\n");
}

fn case(class: &str, case: &CaseReport, text: &mut String) {
    let name = escaped(&case.name);
    if case.failures.is_empty() {
        text.push_str(&format!("    <testcase classname=\"{class}\" name=\"{name}\"/>\n"));
        return;
    }
    text.push_str(&format!("    <testcase classname=\"{class}\" name=\"{name}\">\n"));
    for failure in &case.failures {
        let what = escaped(&failure.what);
        let message = escaped(&format!("line {}: {}", failure.line, failure.message));
        text.push_str(&format!("      <failure type=\"{what}\" message=\"{message}\"/>\n"));
    }
    text.push_str("    </testcase>\n");
}

/// Writes a text into an attribute. XML has no control characters, whatever escapes them.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\r' | '\t' => escaped.push_str(&format!("&#{};", u32::from(character))),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            // A page that shows the results is not turned around by a name.
            _ if character.is_control() || is_invisible(character) => escaped.extend(character.escape_unicode()),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_with_every_special_character_stays_one_attribute() {
        assert_eq!(escaped("a<b>&\"c\"\n\u{1}é\u{202e}"), "a&lt;b&gt;&amp;&quot;c&quot;&#10;\u{fffd}é\\u{202e}");
    }
}
