//! The files in `config/`.

use super::*;
use saphyr_parser::{Event, Parser};

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("config")
        .join(name);
    std::fs::read_to_string(path).expect(name)
}

/// Every line that is off, switched on: those that begin with `#` and no space.
fn switched_on(text: &str) -> String {
    let on = |line: &str| match line.split_once('#') {
        Some((indent, key)) if indent.trim().is_empty() && !key.starts_with(' ') => {
            format!("{indent}{key}\n")
        }
        _ => format!("{line}\n"),
    };
    text.lines().map(on).collect()
}

/// The dotted paths of all keys of a YAML text, entries of lists as `[]`.
fn keys(text: &str) -> Vec<String> {
    // What is open: a list (`None`), or a section and the key whose value comes next.
    enum Open {
        List,
        Section(Option<String>),
    }
    let mut found = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let close = |open: &mut Vec<Open>| {
        if let Some(Open::Section(key)) = open.last_mut() {
            *key = None;
        }
    };
    for event in Parser::new_from_str(text) {
        match event.expect("YAML").0 {
            Event::MappingStart(..) => open.push(Open::Section(None)),
            Event::SequenceStart(..) => open.push(Open::List),
            Event::MappingEnd | Event::SequenceEnd => {
                open.pop();
                close(&mut open);
            }
            Event::Scalar(text, ..) => match open.last_mut() {
                Some(Open::Section(key @ None)) => {
                    *key = Some(text.into_owned());
                    let mut path = String::new();
                    for level in &open {
                        match level {
                            Open::List => path.push_str("[]"),
                            Open::Section(key) => {
                                let dot = if path.is_empty() { "" } else { "." };
                                path = format!("{path}{dot}{}", key.as_deref().unwrap_or_default());
                            }
                        }
                    }
                    found.push(path);
                }
                _ => close(&mut open),
            },
            _ => {}
        }
    }
    found
}

#[test]
fn the_reference_names_every_key_and_no_other() {
    let mut found = keys(&switched_on(&read("sizegate.yaml")));
    let mut known = config::known_keys();
    found.sort();
    known.sort();
    assert_eq!(found, known);
}

#[test]
fn what_is_on_in_the_reference_is_the_default() {
    assert_eq!(
        load(&read("sizegate.yaml")),
        load("cluster: {bootstrap_servers: [localhost:9092]}\n")
    );
}

#[test]
fn what_is_off_in_the_reference_can_be_switched_on() {
    let text = switched_on(&read("sizegate.yaml"));
    let env = [
        ("KAFKA_PASSWORD", "hunter2"),
        ("CLAIM_SECRET", "a secret of thirty-two bytes, yes"),
    ];
    let mistakes = load_with(&text, &Overrides::default(), &env)
        .expect_err("alternatives, and files that are not here");
    for mistake in &mistakes {
        let expected = mistake.contains(": cannot read `/etc/sizegate/")
            || mistake.contains("password_file: cannot be combined with `password`")
            || mistake.contains("secret_file: cannot be combined with `secret`")
            || mistake.contains("listener.sni: cannot be combined with `node_ports`");
        assert!(expected, "{mistake}");
    }
    assert_eq!(mistakes.len(), 9, "{}", mistakes.join("\n"));
}

#[test]
fn the_smallest_config_is_the_defaults() {
    assert_eq!(
        load(&read("minimal.yaml")),
        load("cluster: {bootstrap_servers: [localhost:9092]}\n")
    );
}

#[test]
fn the_worked_example_holds_events_to_64_kib() {
    let config = load(&read("libraryd.yaml")).expect("the worked example");
    assert_eq!(
        config.rules[0].limits.value_bytes,
        Some(InsideLimit::At(65_536))
    );
    assert_eq!(
        config.rules[0].limits.batch_bytes,
        Some(BatchLimit::Inherit)
    );
    assert!(config.advice().is_empty(), "{:?}", config.advice());
}
