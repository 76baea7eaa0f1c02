//! Tells the binary which commit and which rustc it was built by. Without git, or outside a repository of our
//! own, the commit is `unknown`; `SIZEGATE_COMMIT` says it where the sources come without their repository.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SIZEGATE_COMMIT");
    let commit = std::env::var("SIZEGATE_COMMIT").ok().or_else(commit);
    println!(
        "cargo::rustc-env=BUILD_COMMIT={}",
        commit.as_deref().unwrap_or("unknown")
    );
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let rustc = output(Command::new(rustc).arg("--version"));
    // `rustc 1.95.0 (59807616e 2026-04-14)`: the version alone.
    let rustc = rustc
        .as_deref()
        .and_then(|text| text.split(' ').nth(1))
        .unwrap_or("unknown");
    println!("cargo::rustc-env=BUILD_RUSTC={rustc}");
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| output(Command::new("git").arg("rev-parse").args(arguments));
    // Sources unpacked inside someone else's repository are not that repository's commit.
    let top = git(&["--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != Path::new(".").canonicalize().ok()? {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let file = git(&["--git-path", file])?;
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    git(&["--short=12", "HEAD"])
}

fn output(command: &mut Command) -> Option<String> {
    let output = command
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}
