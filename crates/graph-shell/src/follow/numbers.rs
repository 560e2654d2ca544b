//! Programs that print a number for any input.

/// Whether the whole stdout of a program is a number, for any input.
pub(super) fn prints_a_number(name: &str, texts: &[Option<String>]) -> bool {
    let operands = texts.iter().filter(|text| text.as_deref().is_none_or(|text| !text.starts_with('-'))).count();
    match name {
        "wc" => operands == 0,
        "grep" | "egrep" | "fgrep" => operands <= 2 && prints_a_count(texts.iter().flatten().map(String::as_str)),
        "tr" => {
            let known: Vec<&str> = texts.iter().flatten().map(String::as_str).collect();
            matches!(known.as_slice(), ["-cd" | "-dc", "0-9" | "[:digit:]" | "0-9\\n"])
        }
        "stat" => prints_a_size(&texts.iter().map(Option::as_deref).collect::<Vec<_>>()),
        "date" => prints_a_time(&texts.iter().map(Option::as_deref).collect::<Vec<_>>()),
        _ => false,
    }
}

/// Whether the options of `grep` ask for the count of one file's lines. With more files, and in a directory, it prints their names.
pub(super) fn prints_a_count<'t>(texts: impl Iterator<Item = &'t str>) -> bool {
    let mut counts = false;
    for option in texts.take_while(|text| *text != "--").filter(|text| text.len() > 1) {
        let Some(letters) = option.strip_prefix('-') else { continue };
        let (letters, is_known) = match letters.strip_prefix('-') {
            Some("count") => ("c", true),
            Some(name) => ("", matches!(name, "ignore-case" | "extended-regexp" | "fixed-strings" | "invert-match")),
            // The letter of a pattern is the last one, so that the pattern is an operand here.
            None => (
                letters,
                letters.strip_suffix('e').unwrap_or(letters).bytes().all(|letter| b"cEFPGivwxsah".contains(&letter)),
            ),
        };
        if !is_known {
            return false;
        }
        counts |= letters.contains('c');
    }
    counts
}

/// Whether `stat` is asked for one number of a file. An operand without `--` in front may be another format, so only one
/// is allowed: if it is an option, there is no file to print anything about.
pub(super) fn prints_a_size(texts: &[Option<&str>]) -> bool {
    let is_number = |format: &str| {
        matches!(format.strip_prefix('%'), Some("s" | "b" | "h" | "i" | "u" | "g" | "X" | "Y" | "Z" | "W"))
    };
    let files = match texts {
        [Some("-c" | "--format" | "--printf"), Some(format), files @ ..] if is_number(format) => files,
        [Some(option), files @ ..]
            if ["-c", "--format=", "--printf="].iter().any(|name| option.strip_prefix(name).is_some_and(is_number)) =>
        {
            files
        }
        _ => return false,
    };
    files.len() == 1 || files.first() == Some(&Some("--"))
}

/// Whether `date` is asked for a time in digits.
pub(super) fn prints_a_time(texts: &[Option<&str>]) -> bool {
    let is_digits = |format: &str| {
        let parts = format.strip_prefix("+%").map(|rest| rest.split('%'));
        parts.is_some_and(|mut parts| {
            parts.all(|part| matches!(part, "s" | "Y" | "m" | "d" | "H" | "M" | "S" | "j" | "N" | "u" | "w" | "y"))
        })
    };
    let rest = match texts {
        [Some("-u"), rest @ ..] => rest,
        _ => texts,
    };
    match rest {
        [Some(format)]
        | [Some("-d" | "--date" | "-r"), _, Some(format)]
        | [Some(format), Some("-d" | "--date" | "-r"), _] => is_digits(format),
        _ => false,
    }
}
