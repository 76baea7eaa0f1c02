//! How far a long command has come, on standard error: for a person at a terminal twice a second on one line, else a
//! line in half a minute.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

const AT_TERMINAL: Duration = Duration::from_millis(500);
const IN_LOG: Duration = Duration::from_secs(30);

/// Says how far it has come.
pub(super) struct Progress {
    is_terminal: bool,
    said: Instant,
    written: usize,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            is_terminal: std::io::stderr().is_terminal(),
            said: Instant::now(),
            written: 0,
        }
    }

    /// `text` is made only when it is time to say something.
    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        let pause = if self.is_terminal {
            AT_TERMINAL
        } else {
            IN_LOG
        };
        if self.said.elapsed() < pause {
            return;
        }
        self.said = Instant::now();
        let text = text();
        let mut err = std::io::stderr().lock();
        // Progress that cannot be shown is no reason to stop.
        let _ = if self.is_terminal {
            let width = self.written;
            self.written = text.chars().count();
            write!(err, "\r{text:<width$}").and_then(|()| err.flush())
        } else {
            writeln!(err, "sizegate: {text}")
        };
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.written > 0 {
            let width = self.written;
            let _ = write!(std::io::stderr(), "\r{:<width$}\r", "");
        }
    }
}
