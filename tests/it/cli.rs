//! The `sizegate` command as a user meets it: output, exit codes, help.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use clap::CommandFactory;
use sizegate::cli::{Cli, completions};

/// Runs the command in the repository's folder, with these variables and no others that set a key.
fn sizegate(arguments: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sizegate"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SIZEGATE") {
            command.env_remove(name);
        }
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    command
        .args(arguments)
        .envs(env.iter().copied())
        .current_dir(folder)
        .output()
        .expect("the binary runs")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text")
}

/// A config file with `text`, in a folder that lives as long as the first of the two.
fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::TempDir::new().expect("a temporary folder");
    let path = dir.path().join("sizegate.yaml");
    std::fs::write(&path, text).expect("a file");
    (dir, path)
}

#[test]
fn check_says_what_a_config_means() {
    let output = sizegate(&["check", "--config", "config/libraryd.yaml"], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let expected = "\
config/libraryd.yaml is fine.

brokers      localhost:9092
clients      127.0.0.1:19092
advertised   localhost, ports 19093-19102, for brokers 0-9
admin        http://127.0.0.1:9644
mode         enforce
frame_bytes  100MiB

RULE            TOPICS                           ACTION  CODE  LIMITS
library-events  library.events library.events.*  reject  auto  batch_bytes=inherit uncompressed_bytes=4MiB value_bytes=64KiB
(limits)        every other topic                reject  auto  batch_bytes=inherit

FAMILY          RETRY                   DEAD LETTER         ALIGNMENT  HEADROOM
library.events  library.events-retry-*  library.events-dlt  enforce    64KiB
";
    assert_eq!(out(&output), expected);
    assert_eq!(err(&output), "");
}

#[test]
fn check_shows_what_a_rule_takes_from_limits_and_gives_advice() {
    let (_dir, path) = file(
        "cluster: {bootstrap_servers: [b:9092]}\nlistener: {bind: '0.0.0.0:9092'}\nlimits: {record_bytes: 1MiB, ratio: 100}\n\
         rules: [{name: a, topics: [t], limits: {record_bytes: 64KiB}, action: observe},\n\
         {name: b, topics: [u], limits: {record_bytes: none, ratio: none}}]\n",
    );
    let output = sizegate(
        &["check"],
        &[("SIZEGATE_CONFIG", path.to_str().expect("a path"))],
    );
    let text = out(&output);
    assert!(text.contains("\na         t                  observe  auto  batch_bytes=inherit record_bytes=64KiB ratio=100\n"), "{text}");
    assert!(text.contains("\nb         u                  reject   auto  batch_bytes=inherit record_bytes=none ratio=none\n"), "{text}");
    assert!(text.contains("\n(limits)  every other topic  reject   auto  batch_bytes=inherit record_bytes=1MiB ratio=100\n"), "{text}");
    assert!(
        text.contains("\nadvice: listener.advertised_host is `localhost`"),
        "{text}"
    );
    assert_eq!(output.status.code(), Some(0), "advice is not a mistake");
}

#[test]
fn check_shows_which_clients_a_rule_is_for() {
    let (_dir, path) = file(
        "cluster: {bootstrap_servers: [b:9092]}\nrules:\n- {name: vip, topics: ['*'], clients: {client_ids: [a, 'b-*'], \
         principals: [/c|d/]}, limits: {batch_bytes: none}}\n- {name: all, topics: ['*'], limits: {record_bytes: 64KiB}}\n",
    );
    let output = sizegate(&["check", "--config", path.to_str().expect("a path")], &[]);
    let expected = "
RULE      TOPICS             CLIENTS                          ACTION  CODE  LIMITS
vip       *                  client_id=a|b-* principal=/c|d/  reject  auto  batch_bytes=none
all       *                  all                              reject  auto  batch_bytes=inherit record_bytes=64KiB
(limits)  every other topic  all                              reject  auto  batch_bytes=inherit
";
    assert!(out(&output).contains(expected), "{}", out(&output));
}

#[test]
fn check_and_run_say_the_same_mistakes_and_exit_with_64() {
    let (_dir, path) = file("cluster: {bootstrap_servers: [b:9092]}\nmode: on\nnear_limit: 2\n");
    let path = path.to_str().expect("a path");
    let expected = format!(
        "{path}:2: mode: `on` is not `enforce` or `observe`\n\
         {path}:3: near_limit: `2` is not a share above 0 and at most 1, such as `0.8`\n\
         sizegate: 2 mistakes in the configuration\n"
    );
    for command in ["check", "run"] {
        let output = sizegate(&[command, "--config", path], &[]);
        assert_eq!(
            (output.status.code(), err(&output), out(&output)),
            (Some(64), expected.clone(), String::new())
        );
    }
    let output = sizegate(&["check", "--output", "json", "--config", path], &[]);
    assert_eq!(output.status.code(), Some(64));
    let found: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!(found["ok"], false);
    assert_eq!(found["advice"], serde_json::json!([]));
    assert_eq!(
        found["mistakes"][0],
        serde_json::json!({"place": format!("{path}:2"), "key": "mode", "text": "`on` is not `enforce` or `observe`"})
    );
}

#[test]
fn check_prints_the_config_in_force_as_json() {
    let output = sizegate(
        &["check", "--bootstrap-servers", "b:9092", "--output", "json"],
        &[("SIZEGATE__LISTENER__FRAME_BYTES", "1MiB")],
    );
    let found: serde_json::Value = serde_json::from_str(&out(&output)).expect("JSON");
    assert_eq!(
        (&found["ok"], &found["mistakes"]),
        (&true.into(), &serde_json::json!([]))
    );
    assert_eq!(found["config"]["listener"]["frame_bytes"], "1MiB");
    assert_eq!(found["config"]["cluster"]["bootstrap_servers"][0], "b:9092");
}

#[test]
fn bad_usage_exits_with_64_and_help_and_version_with_0() {
    for arguments in [
        &["bogus"][..],
        &[],
        &["run", "--bogus"],
        &["run", "--drain-timeout", "25"],
        &["run", "--workers", "0"],
        &["check", "--output", "xml"],
        &["completions", "tcsh"],
    ] {
        let output = sizegate(arguments, &[]);
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(
            !err(&output).is_empty() && out(&output).is_empty(),
            "{arguments:?}"
        );
    }
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["help", "check"],
    ] {
        let output = sizegate(arguments, &[]);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        assert!(
            err(&output).is_empty() && !out(&output).is_empty(),
            "{arguments:?}"
        );
    }
}

#[test]
fn the_version_tells_the_commit_and_the_compiler() {
    let line = out(&sizegate(&["--version"], &[]));
    let expected = regex::Regex::new(
        r"^sizegate \d+\.\d+\.\d+ \(commit ([0-9a-f]{12}|unknown), rustc \d+\.\d+\.\d+.*\)\n$",
    );
    assert!(expected.expect("a pattern").is_match(&line), "{line}");
}

#[test]
fn every_help_text_carries_an_example_that_parses() {
    fn visit(command: &mut clap::Command, found: &mut Vec<String>) {
        let help = command.render_long_help().to_string();
        let (_, examples) = help
            .split_once("\nExample")
            .unwrap_or_else(|| panic!("no example:\n{help}"));
        let lines = examples
            .lines()
            .filter_map(|line| Some(&line[line.find("sizegate ")?..]));
        found.extend(
            lines
                .filter(|line| !line.contains('=') || line.contains("--"))
                .map(str::to_owned),
        );
        for command in command
            .get_subcommands_mut()
            .filter(|command| command.get_name() != "help")
        {
            visit(command, found);
        }
    }
    let mut found = Vec::new();
    visit(&mut Cli::command(), &mut found);
    assert!(found.len() >= 6, "{found:?}");
    for line in found {
        let words = line
            .split(['|', '>'])
            .next()
            .unwrap_or_default()
            .split_whitespace();
        assert!(Cli::command().try_get_matches_from(words).is_ok(), "{line}");
    }
}

#[test]
fn the_definition_of_the_command_line_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn completions_know_every_command_and_option() {
    use clap_complete::Shell;
    for shell in [
        Shell::Bash,
        Shell::Zsh,
        Shell::Fish,
        Shell::PowerShell,
        Shell::Elvish,
    ] {
        let script = completions::script(shell);
        for word in [
            "run",
            "check",
            "completions",
            "bootstrap-servers",
            "drain-timeout",
            "workers",
            "output",
            "config",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let output = sizegate(&["completions", "bash"], &[]);
    assert_eq!(
        (output.status.code(), out(&output)),
        (Some(0), completions::script(Shell::Bash))
    );
}

#[test]
fn the_bash_completion_completes() {
    let (dir, _) = file("");
    let script = dir.path().join("sizegate.bash");
    std::fs::write(&script, completions::script(clap_complete::Shell::Bash)).expect("a file");
    let typed = "source \"$1\"; COMP_WORDS=(sizegate run --dr); COMP_CWORD=2; _sizegate sizegate --dr run; echo \"${COMPREPLY[@]}\"";
    let output = Command::new("bash")
        .args(["-c", typed, "bash"])
        .arg(&script)
        .output()
        .expect("bash runs");
    assert_eq!(out(&output).trim(), "--drain-timeout", "{}", err(&output));
}

#[test]
fn flags_that_say_nothing_alone_are_refused_with_what_is_missing() {
    let brokers = "--bootstrap-servers=127.0.0.1:1";
    let lacking =
        "says nothing without a record: give --value-bytes, --key-bytes or --headers-bytes\n";
    for (arguments, expected) in [
        (
            &["explain", "orders", brokers, "--max-request-size=10"][..],
            &*format!("sizegate: --max-request-size {lacking}"),
        ),
        (
            &["explain", "orders", brokers, "--records=2"],
            &format!("sizegate: --records {lacking}"),
        ),
        (
            &["explain", "orders", brokers, "--compressed-bytes=100"],
            &format!("sizegate: --compressed-bytes {lacking}"),
        ),
        // Wrong sizes are named as they were typed, and sizes are written as in the config file.
        (
            &["explain", "orders", brokers, "--value-bytes=3GB"],
            "sizegate: --value-bytes is more than 2147483647: no record is that large\n",
        ),
        (
            &[
                "explain",
                "orders",
                brokers,
                "--value-bytes=0",
                "--compressed-bytes=60",
            ],
            "sizegate: --compressed-bytes is below 61: it is the whole batch as it travels, its header included\n",
        ),
        (
            &["check", brokers, "--ready", "--output=json"],
            "sizegate: --ready prints one line of text: leave --output out\n",
        ),
    ] {
        let output = sizegate(arguments, &[]);
        assert_eq!(
            (output.status.code(), err(&output)),
            (Some(64), expected.to_owned()),
            "{arguments:?}"
        );
    }
    let both = sizegate(&["check", brokers, "--ready", "--cluster"], &[]);
    assert_eq!(both.status.code(), Some(64));
    assert!(err(&both).contains("cannot be used with"), "{}", err(&both));
}

#[test]
fn a_response_that_cannot_be_written_exits_with_2() {
    for arguments in [
        &["check", "--bootstrap-servers=b:9092"][..],
        &["completions", "bash"],
        &["--help"],
    ] {
        let full = std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("a full device");
        let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .args(arguments)
            .stdout(full)
            .output()
            .expect("the binary runs");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            err(&output).starts_with("sizegate: cannot write to standard output: No space left"),
            "{}",
            err(&output)
        );
    }
}

#[test]
fn an_empty_variable_for_the_config_file_is_one_that_is_not_set() {
    let output = sizegate(
        &["check", "--bootstrap-servers=b:9092"],
        &[("SIZEGATE_CONFIG", "")],
    );
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
}

#[test]
fn every_broker_that_was_tried_is_told_with_its_own_reason() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("an address");
    let servers = format!("--bootstrap-servers=127.0.0.1:1,127.0.0.1:2,{silent}");
    let output = sizegate(&["explain", "orders", &servers], &[]);
    let text = err(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    for words in [
        &*format!("sizegate: waiting for 127.0.0.1:1,127.0.0.1:2,{silent}\n"),
        "connect 127.0.0.1:1: ",
        "; connect 127.0.0.1:2: ",
        &format!("; {silent} did not answer ApiVersions within "),
        " s: is it a Kafka listener, and is cluster.tls as that listener has it?",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// A script that asked for JSON gets JSON, whatever goes wrong.
#[test]
fn what_fails_with_json_asked_for_says_so_as_json() {
    let (_dir, bad) = file("mode: on\n");
    let (_other, good) = file("cluster: {bootstrap_servers: ['127.0.0.1:1']}\n");
    let (bad, good) = (bad.to_str().unwrap(), good.to_str().unwrap());
    for (arguments, code, words) in [
        (vec!["explain", "orders", "--config", bad], 64, "mode"),
        (
            vec!["explain", "orders", "--config", good],
            2,
            "127.0.0.1:1",
        ),
        (
            vec!["explain", "orders", "--records", "3", "--config", good],
            64,
            "--records says nothing",
        ),
        (vec!["align", "--config", bad], 64, "mode"),
        (vec!["align", "--config", good], 2, "127.0.0.1:1"),
        (vec!["check", "--config", bad], 64, "mode"),
        (
            vec!["check", "--cluster", "--config", good],
            2,
            "127.0.0.1:1",
        ),
        (vec!["check", "--ready"], 64, "--output"),
        (vec!["suggest", "--from", "/nowhere/metrics"], 2, "/nowhere"),
    ] {
        let output = sizegate(&[&arguments[..], &["--output", "json"]].concat(), &[]);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let said: serde_json::Value = serde_json::from_str(&out(&output))
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", out(&output)));
        let error = said["error"].as_str().unwrap_or_else(|| panic!("{said}"));
        assert!(error.contains(words), "{arguments:?}: {error}");
    }
}

#[test]
fn a_variable_that_sets_nothing_is_told_of_with_the_one_that_was_meant() {
    let (_dir, path) = file("cluster: {bootstrap_servers: [kafka:9092]}\n");
    let check = ["check", "--config", path.to_str().unwrap()];
    let output = sizegate(&check, &[("SIZEGATE_MODE", "observe")]);
    let said = out(&output);
    assert!(
        said.contains("SIZEGATE_MODE sets nothing")
            && said.contains("did you mean SIZEGATE__MODE?"),
        "{said}"
    );
    let output = sizegate(
        &check,
        &[
            ("SIZEGATE__MODE", "observe"),
            ("SIZEGATE_PORT", "tcp://10.0.0.1:9092"),
        ],
    );
    assert!(!out(&output).contains("sets nothing"), "{}", out(&output));
}

#[test]
fn a_file_that_is_no_text_is_said_to_be_none() {
    let (_dir, path) = file("");
    std::fs::write(&path, [0x1f, 0x8b, 0x08, 0xff, 0xfe]).unwrap();
    let output = sizegate(&["check", "--config", path.to_str().unwrap()], &[]);
    assert_eq!(output.status.code(), Some(64));
    assert!(
        err(&output).contains("it is no text (UTF-8)"),
        "{}",
        err(&output)
    );
}
