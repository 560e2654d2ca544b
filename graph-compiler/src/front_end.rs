//! The front ends of the compiler: `graph!`, a build script, the command line. Each shows the same diagnostics.

use std::io::Write;

use graph_definition::diagnostic::{Diagnostic, Severity, SourcePlace};
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use serde_json::json;

/// How many errors, and how many warnings, are shown at most.
const SHOWN: usize = 20;

/// The place in the Rust program that names a graph, for editors that do not show diagnostics in other files.
#[derive(Debug, Clone)]
pub struct RustPlace {
    /// The Rust file, relative to the working directory.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The first column of the path, from 1.
    pub column: usize,
    /// The column after its end.
    pub end_column: usize,
    /// The same place as a span.
    pub span: Span,
}

/// Reports diagnostics through rustc, and returns the tokens that make the compilation fail if one is an error.
///
/// Cargo takes a line of JSON on stderr in rustc's own format for rustc's: the error appears as `error[G0102]` with its
/// frame in the YAML file, and is counted, cached and passed on to editors. Cargo does not promise this, so
/// `compile_error!` carries the same text elsewhere, and a warning is carried by the note of a deprecated item that is
/// used. `GRAPH_PLAIN_DIAGNOSTICS=1` turns the JSON off.
pub fn report(diagnostics: &[Diagnostic], name: &str, place: Option<&RustPlace>) -> TokenStream {
    if diagnostics.is_empty() {
        return TokenStream::new();
    }
    match native_lines(diagnostics, place) {
        // One write, so that rustc's own lines do not come in between.
        Some(lines) if std::io::stderr().lock().write_all(lines.as_bytes()).is_ok() => summary(diagnostics, name),
        _ => {
            let errors = compile_errors(diagnostics);
            // Rustc does not show such warnings for a program with errors.
            if errors.is_empty() { compile_warnings(diagnostics, place.map(|place| place.span)) } else { errors }
        }
    }
}

/// Returns `compile_error!`s with the whole text of each error.
///
/// The title comes first and the place second: editors find ` --> file:line:column` on the second line.
pub fn compile_errors(diagnostics: &[Diagnostic]) -> TokenStream {
    let errors: Vec<&Diagnostic> = errors(diagnostics).collect();
    let mut texts: Vec<String> = errors.iter().take(SHOWN).map(|error| plain_text(error)).collect();
    if errors.len() > SHOWN {
        texts.push(format!("and {} more errors", number(errors.into_iter().skip(SHOWN))));
    }
    quote!(#(::std::compile_error!(#texts);)*)
}

/// Returns tokens that make rustc print the whole text of each warning. They are used where nobody reads [`native_lines`].
///
/// On stable, a library can warn only through the use of a deprecated item. `warn(warnings)` keeps it a warning in a
/// program that denies warnings. Warnings that cargo shows natively are not denied there either; a lint becomes an
/// error only by the level `deny`.
fn compile_warnings(diagnostics: &[Diagnostic], span: Option<Span>) -> TokenStream {
    let mut texts: Vec<String> = warnings(diagnostics).take(SHOWN).map(plain_text).collect();
    texts.extend(more_warnings(diagnostics));
    let span = span.unwrap_or_else(Span::call_site);
    let uses = texts.iter().map(|text| {
        quote_spanned! {span=>
            #[warn(warnings, deprecated)]
            const _: () = {
                #[deprecated(note = #text)]
                const fn graph_warning() {}
                graph_warning()
            };
        }
    });
    quote!(#(#uses)*)
}

/// Returns a line that says how many warnings are not shown.
fn more_warnings(diagnostics: &[Diagnostic]) -> Option<String> {
    let more = Some(number(warnings(diagnostics).skip(SHOWN))).filter(|more| *more > 0)?;
    Some(format!("and {more} more warning{}", if more == 1 { "" } else { "s" }))
}

/// Returns how many mistakes are reported, including those that are only counted.
fn number<'d>(diagnostics: impl Iterator<Item = &'d Diagnostic>) -> usize {
    diagnostics.map(|diagnostic| diagnostic.stands_for).sum()
}

fn errors(diagnostics: &[Diagnostic]) -> impl Iterator<Item = &Diagnostic> {
    diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Error)
}

fn warnings(diagnostics: &[Diagnostic]) -> impl Iterator<Item = &Diagnostic> {
    diagnostics.iter().filter(|diagnostic| diagnostic.severity == Severity::Warning)
}

fn plain_text(diagnostic: &Diagnostic) -> String {
    let rendered = diagnostic.render();
    let title = format!("{}[{}]: ", diagnostic.severity.name(), diagnostic.code.id);
    match rendered.strip_prefix(&title) {
        Some(rest) => format!("[{}] {rest}", diagnostic.code.id),
        None => rendered,
    }
}

/// Returns the one error that rustc itself reports after the others were written to stderr.
fn summary(diagnostics: &[Diagnostic], name: &str) -> TokenStream {
    match number(errors(diagnostics)) {
        0 => TokenStream::new(),
        count if count > SHOWN => {
            let text = format!("the graph `{name}` has {count} errors, the first {SHOWN} are shown above");
            quote!(::std::compile_error!(#text);)
        }
        1 => {
            let text = format!("the graph `{name}` has an error, shown above");
            quote!(::std::compile_error!(#text);)
        }
        count => {
            let text = format!("the graph `{name}` has {count} errors, shown above");
            quote!(::std::compile_error!(#text);)
        }
    }
}

/// Returns the diagnostics in rustc's own format, if cargo is listening.
fn native_lines(diagnostics: &[Diagnostic], place: Option<&RustPlace>) -> Option<String> {
    let plain = std::env::var_os("GRAPH_PLAIN_DIAGNOSTICS").is_some_and(|value| !value.is_empty());
    let arguments: Vec<String> = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if plain || !arguments.iter().any(|argument| argument == "--error-format=json") {
        return None;
    }
    let wants =
        |word: &str| arguments.iter().any(|argument| argument.starts_with("--json=") && argument.contains(word));
    let rendered = |diagnostic: &Diagnostic| {
        if wants("diagnostic-short") {
            let (severity, code) = (diagnostic.severity.name(), diagnostic.code.id);
            format!("{}: {severity}[{code}]: {}\n", diagnostic.location(), diagnostic.message)
        } else if wants("diagnostic-rendered-ansi") {
            diagnostic.render_coloured() + "\n\n"
        } else {
            diagnostic.render() + "\n\n"
        }
    };
    let line = |diagnostic: &Diagnostic| format!("{}\n", as_rustc(diagnostic, rendered(diagnostic), place));
    let (mut errors, mut warnings) = (0, 0);
    let shown = diagnostics.iter().filter(|diagnostic| {
        let count = if diagnostic.severity == Severity::Error { &mut errors } else { &mut warnings };
        *count += 1;
        *count <= SHOWN
    });
    let more = more_warnings(diagnostics).map(|text| {
        let rendered = format!("warning: {text}\n\n");
        let message = json!({"$message_type": "diagnostic", "message": text, "code": null, "level": "warning", "spans": [], "children": [], "rendered": rendered});
        format!("{message}\n")
    });
    Some(shown.map(line).chain(more).collect())
}

/// Writes a diagnostic in the format of `rustc --error-format=json`.
fn as_rustc(diagnostic: &Diagnostic, rendered: String, place: Option<&RustPlace>) -> serde_json::Value {
    let child = |level: &str, message: &str| json!({"message": message, "code": null, "level": level, "spans": [], "children": [], "rendered": null});
    let mut children: Vec<_> = diagnostic.notes.iter().map(|note| child("note", note)).collect();
    children.extend(diagnostic.help.iter().map(|help| child("help", help)));
    // An editor drops a diagnostic whose primary span is in a file of another language. So the path in the Rust program
    // is primary if it is known, and the place in the YAML file is secondary.
    let in_yaml = yaml_span(&diagnostic.place, &diagnostic.label, place.is_none());
    let in_rust = place.map(|place| rust_span(place, &diagnostic.location()));
    let spans: Vec<_> = in_rust.into_iter().chain(in_yaml).collect();
    json!({
        "$message_type": "diagnostic",
        "message": diagnostic.message,
        "code": {"code": diagnostic.code.id, "explanation": diagnostic.code.explanation},
        "level": diagnostic.severity.name(),
        "spans": spans,
        "children": children,
        "rendered": rendered,
    })
}

fn yaml_span(place: &SourcePlace, label: &str, is_primary: bool) -> Option<serde_json::Value> {
    let span = place.span.as_ref()?;
    let (line, column) = place.source.position(span.start);
    let (end_line, end_column) = place.source.position(span.end);
    Some(json!({
        "file_name": place.source.name,
        "byte_start": span.start, "byte_end": span.end,
        "line_start": line, "line_end": end_line, "column_start": column, "column_end": end_column,
        "is_primary": is_primary, "text": [], "label": label,
        "suggested_replacement": null, "suggestion_applicability": null, "expansion": null,
    }))
}

fn rust_span(place: &RustPlace, label: &str) -> serde_json::Value {
    json!({
        "file_name": place.file,
        "byte_start": 0, "byte_end": 0,
        "line_start": place.line, "line_end": place.line, "column_start": place.column, "column_end": place.end_column,
        "is_primary": true, "text": [], "label": label,
        "suggested_replacement": null, "suggestion_applicability": null, "expansion": null,
    })
}

#[cfg(test)]
mod tests {
    use graph_definition::diagnostic::code;
    use graph_definition::source::SourceFile;

    use super::*;

    fn diagnostics(count: usize) -> Vec<Diagnostic> {
        let source = SourceFile::new("graphs/g.yaml", "graphs/g.yaml", "next: delivred\n");
        let mut diagnostic = Diagnostic::new(code::UNKNOWN_TARGET, "nowhere", SourcePlace::new(&source, 6..14));
        diagnostic.label("no node with this name").help("did you mean `delivered`?");
        vec![diagnostic; count]
    }

    #[test]
    fn a_compile_error_has_its_title_first_and_its_place_second() {
        let text = plain_text(&diagnostics(1)[0]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "[G0102] nowhere");
        assert_eq!(lines[1].trim(), "--> graphs/g.yaml:1:7");
        assert_eq!(lines.last().unwrap().trim(), "= help: did you mean `delivered`?");
    }

    #[test]
    fn a_flood_of_errors_is_cut() {
        let text = compile_errors(&diagnostics(27)).to_string();
        assert_eq!(text.matches("compile_error").count(), SHOWN + 1);
        assert!(text.contains("and 7 more errors"));
        let summary = |count| summary(&diagnostics(count), "g.yaml").to_string();
        assert!(summary(0).is_empty());
        assert!(summary(1).contains("the graph `g.yaml` has an error, shown above"));
        assert!(summary(SHOWN).contains("has 20 errors, shown above"));
        assert!(summary(27).contains("has 27 errors, the first 20 are shown above"));
    }

    #[test]
    fn warnings_become_deprecation_notes_and_errors_suppress_them() {
        let mut warning = diagnostics(1).remove(0);
        warning.severity = Severity::Warning;
        let text = compile_warnings(&vec![warning.clone(); 22], None).to_string();
        assert_eq!(text.matches("deprecated (note").count(), SHOWN + 1, "{text}");
        assert!(text.contains("\"[G0102] nowhere\\n --> graphs/g.yaml:1:7\\n"), "{text}");
        assert!(text.contains("\"and 2 more warnings\""), "{text}");
        assert!(compile_errors(std::slice::from_ref(&warning)).is_empty());
        assert!(compile_warnings(&diagnostics(3), None).is_empty());
        assert_eq!(more_warnings(&vec![warning; SHOWN]), None);
    }

    #[test]
    fn the_json_is_rustcs_own_form() {
        let place =
            RustPlace { file: "src/main.rs".into(), line: 3, column: 8, end_column: 22, span: Span::call_site() };
        let value = as_rustc(&diagnostics(1)[0], "text".into(), Some(&place));
        assert_eq!(value["$message_type"], "diagnostic");
        assert_eq!(value["code"]["code"], "G0102");
        assert_eq!(value["spans"][0]["file_name"], "src/main.rs");
        assert_eq!(value["spans"][0]["is_primary"], true);
        assert_eq!(value["spans"][1]["file_name"], "graphs/g.yaml");
        assert_eq!(value["spans"][1]["column_start"], 7);
        assert_eq!(value["spans"][1]["is_primary"], false);
        assert_eq!(value["children"][0]["level"], "help");
    }
}
