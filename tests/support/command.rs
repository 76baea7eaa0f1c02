//! Commands as a user types them: `sizegate …`, and those of Kafka's own tools that sizegate says to paste.

use std::process::Command;

use super::process::new_dir;
use super::programs;

/// A command that ended.
#[derive(Debug)]
pub struct Ran {
    /// Exit code.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// Standard output as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn of(mut command: Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Runs `sizegate` with these arguments and a config file of this text.
pub fn sizegate(arguments: &[&str], yaml: &str) -> Ran {
    run(
        Command::new(env!("CARGO_BIN_EXE_sizegate")),
        arguments,
        yaml,
    )
}

/// As [`sizegate`], and it ends where it asks for more memory of its own than so many KiB, its threads' stacks included.
pub fn sizegate_within(data_kib: usize, arguments: &[&str], yaml: &str) -> Ran {
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -d \"$0\" && exec \"$@\""]);
    shell.args([&data_kib.to_string(), env!("CARGO_BIN_EXE_sizegate")]);
    run(shell, arguments, yaml)
}

fn run(mut command: Command, arguments: &[&str], yaml: &str) -> Ran {
    let dir = new_dir("command");
    let file = dir.join("sizegate.yaml");
    std::fs::write(&file, yaml).unwrap();
    command.args(arguments).arg("--config").arg(&file);
    let ran = Ran::of(command);
    let _ = std::fs::remove_dir_all(&dir);
    ran
}

/// Runs a line with `kafka-configs.sh` or `kafka-acls.sh` as a shell does, with the tools of Kafka 4.4.0. The shell parts
/// its words; then one JVM runs all of its commands.
pub fn kafka_tool(line: &str) -> Ran {
    let jars = programs::script("kafka-libs.sh", &["4.4.0", "tools"]);
    let classes = programs::script("java-classes.sh", &["client"]);
    let dir = new_dir("tool");
    let script = format!(
        "set -e\n\
         note() {{ (IFS=$'\\x1f'; printf '%s\\n' \"$*\" >> commands); }}\n\
         kafka-configs.sh() {{ note org.apache.kafka.tools.ConfigCommand \"$@\"; }}\n\
         kafka-acls.sh() {{ note org.apache.kafka.tools.AclCommand \"$@\"; }}\n\
         {line}\n\
         exec java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xmx256m -XX:-UsePerfData \
         -cp '{}:{}/*' Mains commands\n",
        classes.display(),
        jars.display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script]).current_dir(&dir);
    let ran = Ran::of(command);
    assert_eq!(ran.code, 0, "{line}: {ran:?}");
    let _ = std::fs::remove_dir_all(&dir);
    ran
}

/// `docs/limits.md` has this output of a command, as it is.
pub fn docs_show(output: &str) {
    let docs = std::fs::read_to_string(programs::repo().join("docs/limits.md")).unwrap();
    assert!(
        docs.contains(output.trim_end()),
        "docs/limits.md does not show:\n{output}"
    );
}
