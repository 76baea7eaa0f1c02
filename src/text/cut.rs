//! Cuts what others wrote to a length, at a boundary between characters.

/// The first `most` bytes of `text`, less what would split a character.
pub(crate) fn first_bytes(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// The first `most` characters of `text`.
pub(crate) fn first_chars(text: &str, most: usize) -> &str {
    let end = text.char_indices().nth(most).map(|(end, _)| end);
    end.and_then(|end| text.get(..end)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_is_split() {
        let text = "añ€😀";
        let cut: Vec<&str> = (0..=11).map(|most| first_bytes(text, most)).collect();
        let expected = [
            "", "a", "a", "añ", "añ", "añ", "añ€", "añ€", "añ€", "añ€", text, text,
        ];
        assert_eq!(cut, expected);
        let cut: Vec<&str> = (0..=5).map(|most| first_chars(text, most)).collect();
        assert_eq!(cut, ["", "a", "añ", "añ€", text, text]);
    }
}
