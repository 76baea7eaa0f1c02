//! A changed configuration in a running proxy: by SIGHUP, by content, through a ConfigMap's symlinks; and one with a
//! mistake, which changes nothing.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::support::{Connection, Kafka, Part, Sizegate, Topic, batch_of_bytes, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

fn limited(bytes: u64) -> String {
    format!("cluster: {{bootstrap_servers: [overridden:9092]}}\nlimits: {{batch_bytes: {bytes}}}\n")
}

struct Running {
    proxy: Sizegate,
    topic: Topic,
    /// Of one session, opened before anything changes.
    session: Connection,
    _dir: tempfile::TempDir,
}

impl Running {
    fn start(stem: &str, dir: tempfile::TempDir, file: &Path) -> Self {
        let kafka = Kafka::shared("4.3.0");
        let proxy = Sizegate::before(&kafka.bootstrap())
            .file(file.to_str().unwrap())
            .start();
        let session = Connection::open(proxy.bootstrap());
        Self {
            topic: kafka.topic(stem, 1, &[]),
            session,
            proxy,
            _dir: dir,
        }
    }

    fn code(&mut self, bytes: usize) -> i16 {
        // No two batches alike: the same one again and again would be taken for a loop.
        static TIME: AtomicI64 = AtomicI64::new(1_700_000_000_000);
        let time = TIME.fetch_add(1, Ordering::Relaxed);
        let part = Part::new(
            &self.topic,
            batch_of_bytes(bytes).base_timestamp(time).build(),
        );
        self.session.produce(8, -1, &[part])[0].code
    }

    /// Waits until this session's limit is so many bytes.
    fn holds(&mut self, bytes: usize) {
        eventually(PATIENCE, &format!("a limit of {bytes}"), || {
            ((self.code(bytes), self.code(bytes + 1)) == (0, 10)).then_some(())
        });
    }

    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.proxy.metrics().sum(name, labels)
    }
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sizegate.yaml");
    (dir, file)
}

#[test]
fn a_signal_or_changed_content_is_in_force_for_a_session_that_lives_on() {
    let (dir, file) = folder();
    std::fs::write(&file, limited(1_000)).unwrap();
    let mut running = Running::start("reload", dir, &file);
    running.holds(1_000);
    std::fs::write(&file, limited(2_000)).unwrap();
    running.proxy.process().signal("HUP");
    running.holds(2_000);
    std::fs::write(&file, limited(3_000)).unwrap();
    running.holds(3_000);
    assert!(running.metric("config_reloads_total", &[("result", "success")]) >= 2.0);
    assert_eq!(running.metric("config_last_reload_success", &[]), 1.0);
    assert_eq!(
        running.metric("connections", &[]),
        1.0,
        "the session was not dropped"
    );
}

#[test]
fn a_configmap_that_swaps_its_symlink_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    // As the kubelet lays it out: the file is a link to ..data/file, ..data a link that is replaced at once.
    let write = |version: &str, text: &str| {
        let folder = dir.path().join(version);
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("sizegate.yaml"), text).unwrap();
        let staged = dir.path().join("..data_tmp");
        symlink(version, &staged).unwrap();
        std::fs::rename(&staged, dir.path().join("..data")).unwrap();
    };
    write("..2026_01_01", &limited(1_000));
    let file = dir.path().join("sizegate.yaml");
    symlink("..data/sizegate.yaml", &file).unwrap();
    let second = (dir.path().to_owned(), limited(2_000));
    let mut running = Running::start("configmap", tempfile::tempdir().unwrap(), &file);
    running.holds(1_000);
    write("..2026_01_02", &second.1);
    std::fs::remove_dir_all(second.0.join("..2026_01_01")).unwrap();
    running.holds(2_000);
}

#[test]
fn a_mistake_changes_nothing_and_is_said_once() {
    let (dir, file) = folder();
    std::fs::write(&file, limited(1_000)).unwrap();
    let mut running = Running::start("mistake", dir, &file);
    running.holds(1_000);
    for wrong in ["limits: {batch_bytes: 2000, batch_byte: 1}\n", "rules: [\n"] {
        let before = running.metric("config_reloads_total", &[("result", "failure")]);
        std::fs::write(
            &file,
            format!("cluster: {{bootstrap_servers: [overridden:9092]}}\n{wrong}"),
        )
        .unwrap();
        eventually(PATIENCE, "the mistake is seen", || {
            (running.metric("config_reloads_total", &[("result", "failure")]) > before)
                .then_some(())
        });
        assert_eq!(running.metric("config_last_reload_success", &[]), 0.0);
        assert_eq!(
            running.proxy.get("/readyz").0,
            200,
            "the last good one serves"
        );
        assert_eq!((running.code(1_000), running.code(1_001)), (0, 10));
    }
    let line = running.proxy.log_line(&[
        "the last good one stays in force",
        "batch_byte",
        "did you mean",
    ]);
    assert_eq!(running.proxy.log().matches(&line).count(), 1, "{line}");
    // Mended, it is taken over.
    std::fs::write(&file, limited(4_000)).unwrap();
    running.holds(4_000);
    assert_eq!(running.metric("config_last_reload_success", &[]), 1.0);
}
