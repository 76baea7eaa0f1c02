//! Replaces what a file only refers to: environment variables (`${VAR}`), and the files of secrets (`*_file`).
//!
//! Invariant: what was put in is not looked at again, and no mistake shows it.

use std::path::{Path, PathBuf};

use super::layers::Env;
use super::mistakes::{Report, shown};

/// Replaces every `${VAR}`; `$${` stands for `${`.
pub(super) fn interpolate(raw: &str, env: &Env) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = raw;
    while let Some((before, after)) = rest.split_once("${") {
        if let Some(before) = before.strip_suffix('$') {
            text.push_str(before);
            text.push_str("${");
            rest = after;
            continue;
        }
        text.push_str(before);
        let Some((name, after)) = after.split_once('}') else {
            return Err(
                "opens `${` without a `}`; write `$${` for the two characters themselves"
                    .to_owned(),
            );
        };
        match env.get(name) {
            Some(value) => text.push_str(value),
            None => {
                return Err(format!(
                    "names the environment variable {}, which is not set",
                    shown(name)
                ));
            }
        }
        rest = after;
    }
    text.push_str(rest);
    Ok(text)
}

/// The password in a file, without the line end that editors and `echo` leave.
pub(super) fn password_from(file: PathBuf, key: &str, report: &mut Report) -> Option<String> {
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            report.note(key, cannot_read(&file, &error.to_string()));
            return None;
        }
    };
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        report.note(
            key,
            format!("{} is empty", shown(&file.display().to_string())),
        );
        return None;
    }
    Some(password.to_owned())
}

pub(super) fn cannot_read(path: &Path, error: &str) -> String {
    format!(
        "cannot read {}: {error}",
        shown(&path.display().to_string())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_replaced_and_a_doubled_dollar_is_not_one() {
        let env = Env::from([
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "${A}".to_owned()),
        ]);
        for (raw, expected) in [
            ("plain $ text", Ok("plain $ text")),
            ("${A}", Ok("1")),
            ("<${A}${A}>", Ok("<11>")),
            // What a variable holds is not looked at again.
            ("${B}", Ok("${A}")),
            ("$${A}", Ok("${A}")),
            ("$$${A}", Ok("$${A}")),
            (
                "${",
                Err("opens `${` without a `}`; write `$${` for the two characters themselves"),
            ),
            (
                "${C}",
                Err("names the environment variable `C`, which is not set"),
            ),
            (
                "${}",
                Err("names the environment variable ``, which is not set"),
            ),
        ] {
            assert_eq!(
                interpolate(raw, &env).as_deref().map_err(String::as_str),
                expected,
                "{raw}"
            );
        }
    }
}
