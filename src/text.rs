//! Writes numbers, tables and moments as text that people read. Invariant: depends on no other module.

mod cut;
mod moments;
mod printable;

use std::borrow::Cow;
use std::fmt::Write as _;

pub(crate) use cut::{first_bytes, first_chars};
pub(crate) use moments::as_rfc3339;
pub use moments::rfc3339;
pub(crate) use printable::printable;

/// 70112 as 70,112.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut s = String::with_capacity(digits.len().saturating_mul(2));
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
            s.push(',');
        }
        s.push(digit);
    }
    s
}

/// 1 record, 1,204 records, 0 batches: a number with what it counts, whose last word is given in the singular.
pub(crate) fn counted(n: u64, what: &str) -> String {
    format!("{} {}", grouped(n), noun(n, what))
}

/// What is counted, in the singular or, where there is not one of it, in the plural.
pub(crate) fn noun(n: u64, what: &str) -> Cow<'_, str> {
    match what.strip_suffix('y') {
        _ if n == 1 => what.into(),
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{stem}ies").into(),
        _ if what.ends_with("ch") => format!("{what}es").into(),
        _ => format!("{what}s").into(),
    }
}

/// One row of a [`table`].
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// Rows as columns, two spaces between them.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:<width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_one_or_many() {
        for (n, what, text) in [
            (0, "record", "0 records"),
            (1, "record", "1 record"),
            (1_204, "uncompressed record", "1,204 uncompressed records"),
            (1, "batch", "1 batch"),
            (2, "batch", "2 batches"),
            (1, "copy", "1 copy"),
            (3, "copy", "3 copies"),
            (7, "day", "7 days"),
        ] {
            assert_eq!(counted(n, what), text);
        }
    }
}
