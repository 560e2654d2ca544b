//! `graph explain`: explain a diagnostic code, and how to fix the mistake that it reports.

use clap::Args;
use graph_compiler::code::{ALL, DiagnosticCode, Level};
use graph_compiler::diagnostic::nearest;

use super::plain;
use crate::outcome::{CommandOutcome, CommandResult};

/// The width of a line, in characters.
const WIDTH: usize = 100;

#[derive(Args)]
pub(crate) struct ExplainArguments {
    /// A code such as G0102, or 102 for short; without a code, all codes are listed
    #[arg(value_name = "CODE")]
    code: Option<String>,
}

pub(crate) fn run(arguments: &ExplainArguments) -> CommandResult {
    let Some(written) = &arguments.code else {
        for code in ALL {
            let level = code.lint.map_or("error", Level::name);
            out!("{}  {level:<5}  {}", code.id, code.title);
        }
        return Ok(CommandOutcome::Well);
    };
    match named(written) {
        Ok(code) => out_text!("{}: {}\n\n{}", code.id, code.title, text(code)),
        Err(problem) => {
            err!("error: {problem}");
            return Ok(CommandOutcome::Problems);
        }
    }
    Ok(CommandOutcome::Well)
}

/// Finds a code, also in its short form. The error names a similar one.
pub(super) fn named(written: &str) -> Result<DiagnosticCode, String> {
    let id = full(written);
    DiagnosticCode::named(&id).ok_or_else(|| {
        let near = nearest(&id, ALL.iter().map(|code| code.id));
        let hint = near.map_or("`graph explain` lists all codes".to_owned(), |near| format!("did you mean `{near}`?"));
        format!("there is no code `{}`; {hint}", plain(written))
    })
}

/// Returns the explanation of a code.
pub(super) fn text(code: DiagnosticCode) -> String {
    code.text(WIDTH)
}

/// Completes a short form: `g102`, `102` and `G102` become `G0102`.
fn full(written: &str) -> String {
    let written = written.trim().trim_matches(['[', ']']);
    let digits = written.strip_prefix(['g', 'G']).unwrap_or(written);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { format!("G{digits:0>4}") } else { written.to_ascii_uppercase() }
}
