//! Makes a peer's own words fit for logs and pages.

/// Characters that are kept.
const MOST: usize = 256;

/// `bytes` as text: at most 256 characters, none of them a control character, none that turns the direction of what is
/// read (U+202E and its like).
pub(crate) fn printable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .chars()
        .take(MOST)
        .map(|c| if is_unseen(c) { '\u{fffd}' } else { c })
        .collect()
}

fn is_unseen(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_turns_or_hides_text_is_replaced() {
        assert_eq!(
            printable("a\u{202e}b\u{2066}c\nd\u{200b}é".as_bytes()),
            "a\u{fffd}b\u{fffd}c\u{fffd}d\u{fffd}é"
        );
        assert_eq!(printable("заказы-注文".as_bytes()), "заказы-注文");
    }
}
