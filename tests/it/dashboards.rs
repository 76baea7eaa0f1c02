//! `deploy/prometheus` and `deploy/grafana` against a real Prometheus that scraped a real run: every alert fires
//! when it should, every rule evaluates, and every query of every dashboard returns data. What is empty while all is
//! well is asked while it is not.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::process::{Supervised, new_dir};
use crate::support::programs::{repo, script};
use crate::support::{Kafka, Program, Sizegate, eventually, http, ports};
use serde_json::Value;

mod trouble;

use trouble::Trouble;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(300);
/// What Grafana would put in place of these: several scrapes, and the whole run.
const RATE_INTERVAL: &str = "10s";
const RANGE: &str = "60s";
const DASHBOARDS: [&str; 4] = ["overview", "topic", "gate", "claims"];

fn promtool() -> PathBuf {
    script("prometheus.sh", &[])
}

fn deploy(path: &str) -> PathBuf {
    repo().join("deploy").join(path)
}

#[test]
fn promtool_accepts_the_rules_and_each_alert_fires_when_it_should_and_not_before() {
    let rules = |name: &str| deploy("prometheus").join(name);
    for (words, file) in [
        (&["check", "config"], "prometheus.yml"),
        (&["test", "rules"], "alerts.test.yml"),
    ] {
        let output = Command::new(promtool())
            .args(words)
            .arg(rules(file))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{words:?} {file}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let tests = std::fs::read_to_string(rules("alerts.test.yml")).unwrap();
    let alerts = std::fs::read_to_string(rules("alerts.yml")).unwrap();
    let names: Vec<&str> = alerts
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "))
        .collect();
    assert!(names.len() > 10);
    for name in names {
        let tested = format!("alertname: {name}\n");
        assert!(
            tests.matches(&tested).count() >= 2,
            "{name}: when it fires, and when not"
        );
    }
}

/// A real Prometheus with the shipped rules, scraping and evaluating every second.
struct Prometheus {
    process: Supervised,
    address: std::net::SocketAddr,
}

impl Prometheus {
    fn start(sizegate: &Sizegate) -> Self {
        let dir = new_dir("prometheus");
        let rules = |name: &str| deploy("prometheus").join(name).display().to_string();
        let shipped = std::fs::read_to_string(rules("prometheus.yml")).unwrap();
        let config = shipped
            .replace("15s", "1s")
            .replace("localhost:9644", &sizegate.admin().to_string())
            .replace("- recording.yml", &format!("- {}", rules("recording.yml")))
            .replace("- alerts.yml", &format!("- {}", rules("alerts.yml")));
        std::fs::write(dir.join("prometheus.yml"), config).unwrap();
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], ports::free_ports(1)));
        let mut command = Command::new(promtool().with_file_name("prometheus"));
        command
            .arg(format!("--config.file={}/prometheus.yml", dir.display()))
            .arg(format!("--storage.tsdb.path={}/data", dir.display()))
            .arg(format!("--web.listen-address={address}"));
        let process = Supervised::spawn(&command, &dir);
        let prometheus = Self { process, address };
        eventually(PATIENCE, "Prometheus is ready", || {
            assert!(
                prometheus.process.is_running(),
                "{}",
                prometheus.process.last_words()
            );
            matches!(http::get(address, "/-/ready"), Ok((200, _))).then_some(())
        });
        prometheus
    }

    fn ask(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let query: Vec<String> = parameters
            .iter()
            .map(|(key, value)| format!("{key}={}", escaped(value)))
            .collect();
        let path = format!("/api/v1/{path}?{}", query.join("&"));
        let (status, body) = http::get(self.address, &path).unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str::<Value>(&body).unwrap()["data"].clone()
    }

    /// Values that a query has now; NaN is none.
    fn values(&self, expr: &str) -> usize {
        let data = self.ask("query", &[("query", expr)]);
        let is_number = |sample: &&Value| sample["value"][1] != "NaN";
        data["result"]
            .as_array()
            .unwrap()
            .iter()
            .filter(is_number)
            .count()
    }
}

fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => {
                char::from(byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// One query of a dashboard, with the dashboard's variables put in.
struct Query {
    place: String,
    expr: String,
}

fn queries(dashboard: &str, topic: &str, gate: &str) -> Vec<Query> {
    let file = deploy("grafana").join(format!("{dashboard}.json"));
    let board: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let filled = |expr: &str| {
        let expr = expr
            .replace("$__rate_interval", RATE_INTERVAL)
            .replace("$__range", RANGE)
            .replace("\"$job\"", "\".*\"")
            .replace("\"$instance\"", "\".*\"")
            .replace("\"$topic\"", &format!("\"{topic}\""))
            .replace("\"$gate\"", &format!("\"{gate}\""));
        assert!(!expr.contains('$'), "{dashboard}: {expr}");
        expr
    };
    let mut queries = Vec::new();
    let array = |value: &Value| value.as_array().cloned().unwrap_or_default();
    for panel in array(&board["panels"]) {
        for target in array(&panel["targets"]) {
            queries.push(Query {
                place: format!("{dashboard}: {} ({})", panel["title"], target["refId"]),
                expr: filled(target["expr"].as_str().unwrap()),
            });
        }
    }
    for annotation in array(&board["annotations"]["list"]) {
        queries.push(Query {
            place: format!("{dashboard}: annotation {}", annotation["name"]),
            expr: filled(annotation["expr"].as_str().unwrap()).replace("[1m]", "[60s]"),
        });
    }
    // label_values(metric, label): the series that the variable's values are taken from.
    for variable in array(&board["templating"]["list"]) {
        let Some(query) = variable["query"]["query"].as_str() else {
            continue;
        };
        let (series, label) = query
            .trim_start_matches("label_values(")
            .trim_end_matches(')')
            .rsplit_once(", ")
            .unwrap();
        queries.push(Query {
            place: format!("{dashboard}: variable {}", variable["name"]),
            expr: format!("count by ({label}) ({})", filled(series)),
        });
    }
    queries
}

/// Two clusters, or two replicas, can be told apart in every panel.
#[test]
fn every_selector_of_every_dashboard_names_job_and_instance() {
    for dashboard in DASHBOARDS {
        let file = deploy("grafana").join(format!("{dashboard}.json"));
        let text = std::fs::read_to_string(file).unwrap();
        let board: Value = serde_json::from_str(&text).unwrap();
        let panels = board["panels"].as_array().unwrap().iter();
        let targets =
            panels.flat_map(|panel| panel["targets"].as_array().cloned().unwrap_or_default());
        let annotations = board["annotations"]["list"].as_array().unwrap().clone();
        for expr in targets
            .chain(annotations)
            .map(|query| query["expr"].as_str().unwrap().to_owned())
        {
            for selector in expr.split("sizegate_").skip(1) {
                let labels = selector.split('}').next().unwrap();
                assert!(
                    labels.contains("{job=~\"$job\", instance=~\"$instance\""),
                    "{dashboard}: {expr}"
                );
            }
        }
    }
}

#[test]
fn every_query_of_every_dashboard_returns_data_from_a_real_run() {
    let kafka = Kafka::shared("4.3.0");
    let mut trouble = Trouble::start(kafka);
    let prometheus = Prometheus::start(trouble.sizegate());
    let topic = trouble.topic().to_owned();

    let all: Vec<Query> = DASHBOARDS
        .iter()
        .flat_map(|dashboard| queries(dashboard, &topic, "batch"))
        .collect();
    assert!(all.len() > 60, "{}", all.len());

    // Trouble goes on until everything has shown itself: rates need several scrapes.
    let begun = Instant::now();
    let mut empty: Vec<&Query> = all.iter().collect();
    loop {
        trouble.make();
        empty.retain(|query| prometheus.values(&query.expr) == 0);
        let lacking: Vec<String> = empty
            .iter()
            .map(|query| format!("{}\n    {}", query.place, query.expr))
            .chain(rules_that_do_not_show_it(&prometheus))
            .collect();
        if lacking.is_empty() {
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "without data:\n{}\n{}",
            lacking.join("\n"),
            prometheus.process.last_words()
        );
    }
    if let Some(folder) = std::env::var_os("SIZEGATE_SCREENSHOTS") {
        // A line needs more points than a proof.
        while begun.elapsed() < Duration::from_secs(75) {
            trouble.make();
        }
        take_pictures(&prometheus, &topic, Path::new(&folder));
    }
}

/// What of the rules is not as the trouble should make it: every rule evaluates, every recorded series has data, and
/// what goes wrong is told of. What goes well is not told to be wrong.
fn rules_that_do_not_show_it(prometheus: &Prometheus) -> Vec<String> {
    let rules = |kind| -> Vec<Value> {
        let groups = prometheus.ask("rules", &[("type", kind)])["groups"].clone();
        let groups = groups.as_array().unwrap().clone();
        groups
            .iter()
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect()
    };
    let (recording, alerts) = (rules("record"), rules("alert"));
    assert!(!recording.is_empty() && alerts.len() > 10);
    let name = |rule: &Value| rule["name"].as_str().unwrap().to_owned();
    let mut lacking: Vec<String> = recording
        .iter()
        .chain(&alerts)
        .filter(|rule| rule["health"] != "ok")
        .map(Value::to_string)
        .collect();
    let recorded = recording.iter().map(name);
    lacking.extend(recorded.filter(|name| prometheus.values(name) == 0));
    let of_state = |is: &dyn Fn(&Value) -> bool| -> BTreeSet<String> {
        alerts.iter().filter(|rule| is(rule)).map(name).collect()
    };
    let told = of_state(&|rule| rule["state"] != "inactive");
    let expected = [
        "SizegateBrokerRefusals",
        "SizegateClaimFallback",
        "SizegateClaimFallbackFails",
        "SizegateClaimForged",
        "SizegateClaimHeld",
        "SizegateConfigRefused",
        "SizegateFamilyMisaligned",
        "SizegateLingering",
        "SizegateNearLimit",
        "SizegateRefusalLoop",
        "SizegateRefusals",
        "SizegateReloadFailed",
        "SizegateStuckConsumer",
        "SizegateWouldRefuse",
    ];
    let untold = expected.iter().filter(|name| !told.contains(**name));
    lacking.extend(untold.map(|name| format!("alert {name}")));
    // A scrape that comes late on a busy machine makes these pending; they fire after a minute of it.
    let firing = of_state(&|rule| rule["state"] == "firing");
    for name in [
        "SizegateDown",
        "SizegateControlPlaneDown",
        "SizegateLimitsStale",
    ] {
        assert!(!firing.contains(name), "{name}: {firing:?}");
    }
    lacking
}

/// `scripts/screenshots.sh` asks for pictures of what this run looks like.
fn take_pictures(prometheus: &Prometheus, topic: &str, folder: &Path) {
    let output = Program::browser("panels.mjs")
        .arg("prometheus", format!("http://{}", prometheus.address))
        .arg("dashboards", deploy("grafana").display())
        .arg("topic", topic)
        .arg("gate", "batch")
        .arg("folder", folder.display())
        .run();
    assert_eq!(output.lines.len(), DASHBOARDS.len(), "{:?}", output.lines);
}
