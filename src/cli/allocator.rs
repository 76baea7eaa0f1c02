//! Tells glibc's allocator to give back to the system what large requests took.
//!
//! Left alone it keeps it, up to `memory.budget` once more. It listens only to the environment that a program starts in, so
//! the program starts itself once more, as the same process. (Allocators that need not be told take more at the peak:
//! `benches/README.md`.)

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// mallopt(3): what is larger than the first has pages of its own, which go back at once; of what is free at the end of a heap
/// as much as the second stays. (Where only the first is set, the second is 128 KiB, and buffers that a worker takes again in a
/// moment go to the system and back: forwarding 64 KiB costs up to twice as much, `benches/README.md`.)
const SETTINGS: [(&str, &str); 2] = [
    ("MALLOC_MMAP_THRESHOLD_", "2097152"),
    ("MALLOC_TRIM_THRESHOLD_", "8388608"),
];

/// Starts the program once more with what is not set. Returns where all is, where nothing need be, or where it cannot be
/// started: then all that is missed is memory.
pub(super) fn settle() {
    let mut missing = SETTINGS.to_vec();
    missing.retain(|(name, _)| env::var_os(name).is_none());
    if !cfg!(target_env = "gnu") || missing.is_empty() {
        return;
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) else {
        return;
    };
    // It returns only where it fails, and where to log that is not known yet.
    let _ = Command::new(program)
        .arg0(name)
        .args(arguments)
        .envs(missing)
        .exec();
}
