//! Names what this binary was built from: `--version` and the `build_info` metric say it.

/// The version in `Cargo.toml`.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, 12 hex digits, or `unknown`.
pub const COMMIT: &str = env!("BUILD_COMMIT");

/// The compiler's version.
pub const RUSTC: &str = env!("BUILD_RUSTC");

/// All three in one line.
pub const LINE: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("BUILD_COMMIT"),
    ", rustc ",
    env!("BUILD_RUSTC"),
    ")"
);
