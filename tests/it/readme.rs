//! What README and `docs/` show works as it is written there.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use sizegate::cli::Cli;

use crate::support::process::{Supervised, new_dir};
use crate::support::{KAFKA_VERSIONS, Kafka, eventually, http, ports, programs};

const PATIENCE: Duration = Duration::from_secs(120);
/// What the quick start names, by the programs that stand in for it.
const KAFKA: &str = "localhost:9092";
const SIZEGATE: &str = "localhost:19092";

/// A Markdown file.
struct Document {
    path: PathBuf,
    text: String,
}

impl Document {
    fn read(path: PathBuf) -> Self {
        let text = std::fs::read_to_string(&path).unwrap();
        Self { path, text }
    }

    fn name(&self) -> String {
        let root = programs::repo();
        self.path.strip_prefix(root).unwrap().display().to_string()
    }

    /// The fenced blocks of a language, without their fences.
    fn blocks(&self, language: &str) -> Vec<String> {
        let mut blocks = Vec::new();
        let mut lines = self.text.lines();
        while let Some(line) = lines.next() {
            if line.trim() == format!("```{language}") {
                let block: Vec<&str> = lines
                    .by_ref()
                    .take_while(|line| line.trim() != "```")
                    .collect();
                blocks.push(block.join("\n"));
            }
        }
        blocks
    }

    /// What stands in backticks within its lines, outside of fenced blocks.
    fn spans(&self) -> Vec<&str> {
        let mut is_fenced = false;
        let mut spans = Vec::new();
        for line in self.text.lines() {
            is_fenced ^= line.trim().starts_with("```");
            if !is_fenced {
                spans.extend(line.split('`').skip(1).step_by(2));
            }
        }
        spans
    }

    /// Each command line that it shows, in a block or in a span: no comment, no variables before it.
    fn command_lines(&self) -> Vec<String> {
        let blocks = self.blocks("sh").join("\n");
        let spans = self.spans();
        blocks
            .lines()
            .chain(spans)
            .map(|line| line.split(" #").next().unwrap_or_default())
            .map(|line| {
                let is_variable = |word: &&str| word.starts_with("SIZEGATE_") && word.contains('=');
                let words = line.split_whitespace().skip_while(is_variable);
                words.collect::<Vec<_>>().join(" ")
            })
            .collect()
    }

    /// Names that its headings can be linked by, as GitHub makes them.
    fn anchors(&self) -> Vec<String> {
        let headings = self.text.lines().filter(|line| line.starts_with('#'));
        headings
            .map(|line| {
                let title = line.trim_start_matches('#').trim().to_lowercase();
                let kept = |c: &char| c.is_alphanumeric() || ['-', '_', ' '].contains(c);
                title.chars().filter(kept).collect::<String>()
            })
            .map(|title| title.replace(' ', "-"))
            .collect()
    }
}

fn readme() -> Document {
    Document::read(programs::repo().join("README.md"))
}

fn documents() -> Vec<Document> {
    let root = programs::repo();
    let in_docs = std::fs::read_dir(root.join("docs")).unwrap();
    let mut paths: Vec<PathBuf> = in_docs
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .chain(
            [
                "README.md",
                "CONTRIBUTING.md",
                "SECURITY.md",
                "ARCHITECTURE.md",
            ]
            .map(|name| root.join(name)),
        )
        .collect();
    paths.sort();
    assert!(paths.len() > 10, "{paths:?}");
    paths.into_iter().map(Document::read).collect()
}

#[test]
fn readme_is_short() {
    assert!(readme().text.lines().count() <= 200);
}

/// A block without a cluster shows a part: the shortest cluster is put before it.
#[test]
fn every_configuration_they_show_is_accepted() {
    let mut count = 0;
    for document in documents() {
        for block in document.blocks("yaml") {
            count += 1;
            let is_whole = block.lines().any(|line| line.starts_with("cluster:"));
            let cluster = "cluster: {bootstrap_servers: [\"localhost:9092\"]}\n";
            let config = format!("{}{block}", if is_whole { "" } else { cluster });
            let folder = tempfile::tempdir().unwrap();
            // The one file that a configuration shown needs to be there.
            let key = folder.path().join("claim-k1");
            std::fs::write(&key, [7; 32]).unwrap();
            let config = config.replace("/run/secrets/claim-k1", &key.display().to_string());
            let file = folder.path().join("sizegate.yaml");
            std::fs::write(&file, config).unwrap();
            let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
                .arg("check")
                .arg("--config")
                .arg(&file)
                .output()
                .unwrap();
            assert!(
                output.status.success(),
                "{}: {block}\n{}",
                document.name(),
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    assert!(count > 4, "{count}");
}

#[test]
fn every_sizegate_command_they_show_is_one() {
    let commands: Vec<String> = Cli::command()
        .get_subcommands()
        .map(|command| command.get_name().to_owned())
        .collect();
    let mut count = 0;
    for document in documents() {
        for line in document.command_lines() {
            let line = line.strip_prefix("target/release/").unwrap_or(&line);
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_command = words.first() == Some(&"sizegate")
                && words.get(1).is_some_and(|word| {
                    word.starts_with('-') || commands.iter().any(|command| command == word)
                });
            if is_command {
                count += 1;
                let parsed = Cli::try_parse_from(&words);
                let is_fine = parsed.is_ok() || words.contains(&"--version");
                assert!(is_fine, "{}: {line}", document.name());
            }
        }
    }
    assert!(count > 15, "{count}");
}

#[test]
fn every_make_target_they_show_is_one() {
    let makefile = std::fs::read_to_string(programs::repo().join("Makefile")).unwrap();
    let mut count = 0;
    for document in documents() {
        for line in document.command_lines() {
            if let Some(target) = line.strip_prefix("make ") {
                count += 1;
                let rule = format!("\n{target}:");
                assert!(makefile.contains(&rule), "{}: {line}", document.name());
            }
        }
    }
    assert!(count > 3, "{count}");
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_are_there() {
    let mut count = 0;
    for document in documents() {
        let links = document.text.split("](").skip(1);
        for link in links.filter_map(|rest| rest.split(')').next()) {
            if link.starts_with("http") {
                continue;
            }
            count += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = match file {
                "" => document.path.clone(),
                file => document.path.parent().unwrap().join(file),
            };
            assert!(path.exists(), "{}: {link}", document.name());
            let anchors = || Document::read(path).anchors();
            assert!(
                anchor.is_empty() || anchors().iter().any(|name| name == anchor),
                "{}: {link}",
                document.name()
            );
        }
    }
    assert!(count > 30, "{count}");
}

/// Files of the repository that a span names, such as `tests/it/tls.rs`.
#[test]
fn every_file_they_name_is_there() {
    const FOLDERS: [&str; 7] = [
        "tests/", "scripts/", "deploy/", "docs/", "config/", "src/", "benches/",
    ];
    for document in documents() {
        for span in document.spans() {
            let is_file = FOLDERS.iter().any(|folder| span.starts_with(folder))
                && !span.contains([' ', '*', '{', 'X']);
            assert!(
                !is_file || programs::repo().join(span).exists(),
                "{}: {span}",
                document.name()
            );
        }
    }
}

/// The block of the quick start that has this word.
fn quick_start(word: &str) -> Vec<String> {
    let blocks = readme().blocks("sh");
    let block = blocks.iter().find(|block| block.contains(word));
    let block = block.unwrap_or_else(|| panic!("README shows no {word}"));
    block.lines().map(str::to_owned).collect()
}

/// sizegate as the quick start starts it, but for its ports; and its admin server.
fn started_as_shown(kafka: &Kafka, first_port: u16) -> (Supervised, std::net::SocketAddr) {
    let lines = quick_start("target/release/sizegate run --bootstrap-servers");
    let line = lines.last().unwrap();
    let line = line
        .replace("target/release/sizegate", env!("CARGO_BIN_EXE_sizegate"))
        .replace(KAFKA, &kafka.bootstrap());
    let admin = format!("127.0.0.1:{}", first_port + 11);
    let mut command = Command::new("bash");
    command.args(["-c", &format!("exec env {line}")]).envs([
        (
            "SIZEGATE__LISTENER__BIND",
            format!("127.0.0.1:{first_port}"),
        ),
        ("SIZEGATE__ADMIN__BIND", admin.clone()),
    ]);
    let admin = admin.parse().unwrap();
    let sizegate = Supervised::spawn(&command, &new_dir("quick-start"));
    eventually(PATIENCE, "the quick start's sizegate is ready", || {
        assert!(sizegate.is_running(), "{}", sizegate.last_words());
        matches!(http::get(admin, "/readyz"), Ok((200, _))).then_some(())
    });
    (sizegate, admin)
}

/// What a line of the quick start prints to both streams, with Kafka's own tool and the clients of the tests.
fn what_it_prints(line: &str) -> String {
    let jars = programs::script("kafka-libs.sh", &["4.4.0", "tools"]);
    let python = programs::script("python-env.sh", &[]);
    let kcat = programs::script("kcat.sh", &[]);
    let folders = [python, kcat].map(|program| folder_of(&program));
    let script = format!(
        "kafka() {{ java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmx256m -XX:-UsePerfData -cp '{}/*' \
         \"org.apache.kafka.tools.$@\"; }}\n\
         kafka-topics.sh() {{ kafka TopicCommand \"$@\"; }}\n\
         kafka-console-producer.sh() {{ kafka ConsoleProducer \"$@\"; }}\n\
         export PATH='{}':$PATH\n{line}\n",
        jars.display(),
        folders.join(":"),
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let both = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

fn folder_of(program: &Path) -> String {
    program.parent().unwrap().display().to_string()
}

#[test]
fn each_client_of_the_quick_start_is_refused_by_sizegate_at_its_default_settings() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let first_port = ports::free_ports(12);
    let (sizegate, admin) = started_as_shown(kafka, first_port);
    let log = sizegate.stdout() + &sizegate.stderr();
    let said = log.lines().find(|line| line.contains("is listening"));
    for words in [
        "mode=enforce".to_owned(),
        format!("brokers={}", kafka.bootstrap()),
        "rules=0".to_owned(),
        format!("page=http://{admin}/"),
    ] {
        assert!(said.unwrap_or_default().contains(&words), "{words}: {log}");
    }

    let lines = quick_start("kafka-console-producer.sh");
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (refused, line) in lines.iter().enumerate() {
        assert!(line.contains(SIZEGATE), "{line}");
        let printed = what_it_prints(&line.replace(SIZEGATE, &format!("localhost:{first_port}")));
        let shown = match line {
            line if line.contains("--create") => "Created topic quickstart.",
            line if line.contains("kcat") => "Broker: Message size too large",
            _ => "sizegate refused quickstart-0: ",
        };
        assert!(printed.contains(shown), "{line}\n{printed}");
        let (_, refusals) = http::get(admin, "/api/v1/refusals?topic=quickstart").unwrap();
        let refusals: serde_json::Value = serde_json::from_str(&refusals).unwrap();
        let refusals = refusals["refusals"]
            .as_array()
            .unwrap_or_else(|| panic!("{refusals}"));
        assert_eq!(refusals.len(), refused, "{line}: {refusals:?}");
        assert!(
            refusals.iter().all(|one| one["refused_by"] == "sizegate"),
            "{refusals:?}"
        );
    }
    assert_eq!(kafka.latest_offset("quickstart", 0), 0, "nothing is stored");
}
