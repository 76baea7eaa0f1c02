//! The layers that ARCHITECTURE.md draws hold: a module uses only what is below it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// Comments and literals.
static NOT_CODE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r##"(?s)//[^\n]*|r#".*?"#|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'"##).expect("a pattern")
});

/// What declares a module that is a file of its own.
static MODULE_FILE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([a-z]+\))? )?mod (\w+);").expect("a pattern")
});

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Each module's layer, 0 at the top, from the table under `## Layers`.
fn layers() -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let (_, after) = text
        .split_once("\n## Layers\n")
        .expect("a section `Layers`");
    let section = after.split("\n## ").next().unwrap_or(after);
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let name = Regex::new("`([a-z_]+)`").expect("a pattern");
    let mut layers = BTreeMap::new();
    for (layer, row) in rows.enumerate() {
        let modules = row.split('|').nth(1).expect("a first column");
        for module in name.captures_iter(modules) {
            let twice = layers.insert(module[1].to_owned(), layer);
            assert_eq!(twice, None, "`{}` stands in two layers", &module[1]);
        }
    }
    layers
}

/// The modules that `lib.rs` declares.
fn modules() -> BTreeSet<String> {
    let lib = fs::read_to_string(root().join("src/lib.rs")).expect("lib.rs");
    let declared = Regex::new(r"(?m)^(?:pub(?:\(crate\))? )?mod ([a-z_]+);").expect("a pattern");
    let found = declared.captures_iter(&lib);
    found.map(|module| module[1].to_owned()).collect()
}

fn rust_files(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// A file without comments, string literals, and what is compiled for tests only. Also the files that only tests have
/// (`#[cfg(test)] mod tests;`).
fn product_code(path: &Path) -> (String, Vec<PathBuf>) {
    let text = fs::read_to_string(path).expect("a source file");
    let mut rest = NOT_CODE.replace_all(&text, " ").into_owned();
    let mut of_tests = Vec::new();
    let folder = match path.file_name().and_then(|name| name.to_str()) {
        Some("lib.rs" | "main.rs") => path.parent().expect("a folder").to_owned(),
        _ => path.with_extension(""),
    };
    while let Some(at) = rest.find("#[cfg(test)]") {
        let item = rest[at..].strip_prefix("#[cfg(test)]").expect("just found");
        if let Some(module) = MODULE_FILE.captures(item) {
            of_tests.push(folder.join(format!("{}.rs", &module[1])));
        }
        let end = at + "#[cfg(test)]".len() + end_of_item(item);
        rest.replace_range(at..end, "");
    }
    (rest, of_tests)
}

/// Up to the `;` or the closing brace that ends the item at the start of `code`.
fn end_of_item(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth -= 1;
                if depth == 0 && c == '}' {
                    let rest = code[at + 1..].trim_start();
                    return if rest.starts_with(';') {
                        code.len() - rest.len() + 1
                    } else {
                        at + 1
                    };
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

/// The first names of the paths that start at `crate::`, those of `crate::{a, b::c}` too.
fn used(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        if let Some(list) = rest.strip_prefix('{') {
            let end = end_of_item(rest);
            let mut depth = 0_i32;
            let mut names = String::new();
            for c in list[..end - 2].chars() {
                match c {
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ if depth == 0 => names.push(c),
                    _ => {}
                }
            }
            found.extend(names.split(',').map(|name| first_name(name.trim_start())));
        } else {
            found.insert(first_name(rest));
        }
    }
    found
}

fn first_name(path: &str) -> String {
    path.chars()
        .take_while(|c| c.is_alphanumeric() || *c == '_')
        .collect()
}

/// By module, the modules that its product code uses, each with a file that does.
fn uses() -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let source = root().join("src");
    let mut files = Vec::new();
    rust_files(&source, &mut files);
    let read: Vec<_> = files
        .iter()
        .map(|path| (path, product_code(path)))
        .collect();
    let of_tests: BTreeSet<&PathBuf> = read.iter().flat_map(|(_, (_, tests))| tests).collect();
    let is_of_tests = |path: &Path| {
        of_tests
            .iter()
            .any(|tests| path == tests.as_path() || path.starts_with(tests.with_extension("")))
    };
    let modules = modules();
    let mut uses: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for (path, (code, _)) in &read {
        let inside = path.strip_prefix(&source).expect("a file of src");
        let first = inside.iter().next().expect("a name");
        let module = first.to_string_lossy().trim_end_matches(".rs").to_owned();
        if !modules.contains(&module) || is_of_tests(path) {
            continue;
        }
        let of_module = uses.entry(module.clone()).or_default();
        for name in used(code) {
            if name != module && modules.contains(&name) {
                of_module.entry(name).or_insert_with(|| inside.to_owned());
            }
        }
    }
    uses
}

#[test]
fn every_module_has_a_layer() {
    let drawn: BTreeSet<String> = layers().into_keys().collect();
    assert_eq!(drawn, modules());
}

#[test]
fn modules_use_only_what_is_below_them() {
    let layers = layers();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (module, used) in uses() {
        for (other, file) in used {
            seen += 1;
            if layers[&module] >= layers[&other] {
                wrong.push(format!("{module} uses {other}: {}", file.display()));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(seen > 50, "only {seen} uses were found: are they read?");
}

#[test]
fn uses_are_read_out_of_lists_and_paths() {
    let names = |code: &str| used(code).into_iter().collect::<Vec<_>>();
    assert_eq!(names("use crate::wire::{api, reader};"), ["wire"]);
    assert_eq!(
        names("use crate::{batch, policy::{Limit, Size}, wire};\nlet x = crate::codec::Output;"),
        ["batch", "codec", "policy", "wire"]
    );
}
