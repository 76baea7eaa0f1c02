//! Tells glibc's allocator to give back to the system what large requests took.
//!
//! Left alone it keeps it, up to `memory.budget` once more. It listens only to the environment that a program starts in, so
//! the program starts itself once more, as the same process. (Allocators that need not be told take more at the peak:
//! `benches/README.md`.)

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// mallopt(3), `M_MMAP_THRESHOLD`: what is larger has pages of its own.
const SETTING: &str = "MALLOC_MMAP_THRESHOLD_";
const BYTES: &str = "2097152";

/// Starts the program once more with the setting. Returns where it has one already, needs none, or cannot be started: then
/// all that is missed is memory.
pub(super) fn settle() {
    if !cfg!(target_env = "gnu") || env::var_os(SETTING).is_some() {
        return;
    }
    let mut arguments = env::args_os();
    let (Ok(program), Some(name)) = (env::current_exe(), arguments.next()) else {
        return;
    };
    let error = Command::new(program)
        .arg0(name)
        .args(arguments)
        .env(SETTING, BYTES)
        .exec();
    // Where the log goes is not known yet.
    drop(error);
}
