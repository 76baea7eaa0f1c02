//! What README shows works as it is written there.

use std::path::Path;
use std::process::Command;

use clap::Parser;
use sizegate::cli::Cli;

/// The fenced blocks of a language, without their fences.
fn blocks(language: &str) -> Vec<String> {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let mut blocks = Vec::new();
    let mut lines = readme.lines();
    while let Some(line) = lines.next() {
        if line.trim() == format!("```{language}") {
            let block: Vec<&str> = lines
                .by_ref()
                .take_while(|line| line.trim() != "```")
                .collect();
            blocks.push(block.join("\n"));
        }
    }
    assert!(!blocks.is_empty(), "README has no {language} block");
    blocks
}

/// Words of each command line that begins with `program`, the program left out.
fn command_lines(program: &str) -> Vec<Vec<String>> {
    let lines: Vec<Vec<String>> = blocks("sh")
        .iter()
        .flat_map(|block| block.lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| line.split('#').next().unwrap_or_default().trim().to_owned())
        .filter_map(|line| {
            line.strip_prefix(program)
                .map(|rest| rest.split_whitespace().map(str::to_owned).collect())
        })
        .collect();
    assert!(!lines.is_empty(), "README shows no {program}");
    lines
}

#[test]
fn every_configuration_it_shows_is_accepted() {
    for block in blocks("yaml") {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sizegate.yaml");
        std::fs::write(&file, &block).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .arg("check")
            .arg("--config")
            .arg(&file)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{block}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn every_sizegate_command_it_shows_is_one() {
    for words in command_lines("target/release/sizegate ") {
        let line = std::iter::once("sizegate".to_owned()).chain(words.clone());
        assert!(Cli::try_parse_from(line).is_ok(), "{words:?}");
    }
}

#[test]
fn every_make_target_it_shows_is_one() {
    let makefile =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).unwrap();
    for words in command_lines("make ") {
        let rule = format!("\n{}:", words[0]);
        assert!(makefile.contains(&rule), "make {}", words[0]);
    }
}

#[test]
fn every_file_it_links_to_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let links: Vec<&str> = readme
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|link| !link.starts_with("http") && !link.starts_with('#'))
        .collect();
    assert!(links.len() > 3, "{links:?}");
    for link in links {
        assert!(root.join(link).exists(), "{link}");
    }
}
