//! Whatever a file holds, reading it ends with a config or mistakes.

use super::*;

/// YAML-like text: pieces of real configs and of YAML's own syntax, in any order.
fn yamlish() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = [
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        ": ",
        ":",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "#",
        "&a ",
        "*a",
        "!t ",
        "|",
        ">",
        "?",
        "---",
        "...",
        "~",
        "null",
        "${A}",
        "${",
        "\t",
        "\u{feff}",
        "\u{0}",
        "é",
        "%",
        "@",
        "9999999999999999999",
        "-1",
        "0-2147483647",
        "64KiB",
        "/(/",
        "*",
        "a:1",
        ".",
        "[0]",
    ]
    .map(str::to_owned)
    .to_vec();
    for key in config::known_keys() {
        let key = key.rsplit(['.', ']']).next().unwrap_or_default().to_owned();
        pieces.push(format!("\n{key}: "));
        pieces.push(format!("\n  {key}: "));
        pieces.push(key);
    }
    prop::collection::vec(prop::sample::select(pieces), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_like_yaml_never_panics(text in yamlish()) {
        let _ = load(&text);
    }

    #[test]
    fn the_reference_with_a_piece_replaced_never_panics(at in 0.0..1.0f64, length in 0..200usize, piece in yamlish()) {
        let text = include_str!("../../../config/sizegate.yaml");
        let boundary = |mut i: usize| { while !text.is_char_boundary(i) { i -= 1 } i };
        let start = boundary((at * text.len() as f64) as usize);
        let end = boundary((start + length).min(text.len()));
        let _ = load(&format!("{}{piece}{}", &text[..start], &text[end..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_and_variables_never_panic(text in any::<String>(), name in "(SIZEGATE__)?\\PC{0,40}", value in any::<String>()) {
        let env = BTreeMap::from([(name, value)]);
        let _ = config::load(None, &Overrides { bootstrap_servers: Some(text.clone()) }, &env);
        let _ = load(&text);
    }
}
