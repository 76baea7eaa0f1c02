//! Processes that end when the test that started them ends, however it ends.
//!
//! Each runs under a small shell that waits on a pipe from this process: the pipe closes when [`Supervised`] is
//! dropped, when the test binary exits (statics are never dropped) and when it is killed; then the shell kills
//! its child and removes the child's folder. The shell has a process group of its own, so Ctrl-C reaches the
//! test alone and the rest follows. `PR_SET_PDEATHSIG` would not do: it fires when the starting *thread* ends,
//! and a broker shared by many tests outlives the thread that started it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

const SUPERVISOR: &str = r#"
dir=$1; shift
"$@" >>"$dir/stdout" 2>>"$dir/stderr" </dev/null 3>&- &
echo $!
read -r word
kill -9 $! 2>/dev/null
wait $!
code=$?
[ "$word" = keep ] || rm -rf "$dir"
exit $code
"#;

/// A running process with a folder of its own, which holds its `stdout` and `stderr`.
pub struct Supervised {
    shell: Child,
    pipe: Option<ChildStdin>,
    pid: u32,
    dir: PathBuf,
    name: String,
}

/// A new folder, gone when this process is.
pub fn new_dir(stem: &str) -> PathBuf {
    static ROOT: LazyLock<(PathBuf, Child)> = LazyLock::new(removed_with_this_process);
    let dir = ROOT.0.join(super::unique(stem));
    fs::create_dir_all(&dir).unwrap();
    dir
}

/// A folder under the system's temporary one, and the shell that removes it when the pipe from this process closes. What
/// is killed at the same time may still write: it tries for some seconds.
fn removed_with_this_process() -> (PathBuf, Child) {
    const REMOVER: &str = r#"
read -r word
tries=0
until rm -rf "$1" 2>/dev/null || [ $tries -ge 50 ]; do tries=$((tries + 1)); sleep 0.1; done
"#;
    let root = std::env::temp_dir().join(super::unique("sizegate-tests"));
    fs::create_dir_all(&root).unwrap();
    let remover = Command::new("sh")
        .args(["-c", REMOVER, "remover"])
        .arg(&root)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("sh starts");
    (root, remover)
}

impl Supervised {
    /// Starts `command` (program, arguments and environment are taken from it); `dir` exists.
    pub fn spawn(command: &Command, dir: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(SUPERVISOR).arg("supervisor").arg(dir);
        shell.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => shell.env(key, value),
                None => shell.env_remove(key),
            };
        }
        if let Some(current) = command.get_current_dir() {
            shell.current_dir(current);
        }
        let mut shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        let mut line = String::new();
        BufReader::new(shell.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let pid = line
            .trim()
            .parse()
            .expect("the supervisor says the child's process id");
        let name = command.get_program().to_string_lossy().into_owned();
        let pipe = shell.stdin.take();
        Self {
            shell,
            pipe,
            pid,
            dir: dir.to_path_buf(),
            name,
        }
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        read_lossy(&self.dir.join("stdout"))
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        read_lossy(&self.dir.join("stderr"))
    }

    /// Both, for a message about a failure: the last lines.
    pub fn last_words(&self) -> String {
        let tail = |text: String| {
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        format!(
            "--- stdout\n{}\n--- stderr\n{}",
            tail(self.stdout()),
            tail(self.stderr())
        )
    }

    /// Whether it still runs: a zombie does not.
    pub fn is_running(&self) -> bool {
        let Ok(stat) = fs::read_to_string(format!("/proc/{}/stat", self.pid)) else {
            return false;
        };
        // pid (name) state …: the name may hold anything, so look behind its last bracket.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| !rest.trim_start().starts_with(['Z', 'X']))
    }

    /// Resident memory now, in bytes.
    pub fn rss_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// The most resident memory it ever had, in bytes.
    pub fn peak_rss_bytes(&self) -> u64 {
        self.status_bytes("VmHWM:")
    }

    fn status_bytes(&self, key: &str) -> u64 {
        self.try_status_bytes(key).expect("a process that runs")
    }

    fn try_status_bytes(&self, key: &str) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        let kib = status.lines().find_map(|line| line.strip_prefix(key))?;
        Some(kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024)
    }

    /// Resident memory in bytes and open descriptors now; `None` when it does not run.
    pub fn takes(&self) -> Option<(u64, u64)> {
        let rss_bytes = self.try_status_bytes("VmRSS:")?;
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.pid)).ok()?.count();
        Some((rss_bytes, descriptors as u64))
    }

    /// Sends a signal by name, e.g. `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .arg(format!("-{name}"))
            .arg(self.pid.to_string())
            .status()
            .unwrap();
        assert!(
            status.success(),
            "kill -{name} {} ({})",
            self.pid,
            self.name
        );
    }

    /// Waits until it ended by itself and returns its exit code; `None` when it still runs after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Option<i32> {
        let start = Instant::now();
        while self.is_running() {
            if start.elapsed() > limit {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(self.end("keep"))
    }

    /// Kills it at once, as a machine that loses power would; its folder stays.
    pub fn kill(mut self) {
        self.end("keep");
        self.dir = PathBuf::new();
    }

    fn end(&mut self, word: &str) -> i32 {
        if let Some(mut pipe) = self.pipe.take() {
            // The shell may be gone already; then there is nothing to tell it.
            let _ = writeln!(pipe, "{word}");
        }
        self.shell
            .wait()
            .ok()
            .and_then(|status| status.code())
            .unwrap_or(-1)
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.end("remove");
        if self.dir != PathBuf::new() {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}
