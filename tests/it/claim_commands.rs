//! `sizegate claim …` as a user types it, against a real broker and a real S3 server, looked at from the other side by
//! another S3 client.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use sizegate::vocabulary::Codec;

use crate::claim_store::{Fault, S3};
use crate::support::batch::random;
use crate::support::command::{Ran, sizegate};
use crate::support::process::new_dir;
use crate::support::stores::{Bucket, Server};
use crate::support::{Connection, Kafka, Part, Record, Sizegate, Topic, batch, eventually, unique};

const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "a secret of thirty-two bytes, yes";

/// Topics `STEM-…` that are offloaded to a bucket of their own.
struct Setup {
    kafka: &'static Kafka,
    bucket: Bucket,
    stem: String,
    more: String,
}

impl Setup {
    fn new(server: Server, more: &str) -> Self {
        Self {
            kafka: Kafka::shared("4.4.0"),
            bucket: Bucket::new(server),
            stem: unique("c"),
            more: more.to_owned(),
        }
    }

    fn claims(&self) -> String {
        format!(
            "claim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\n{}\
             rules:\n- name: large\n  topics: ['{}-*']\n  limits: {{record_bytes: 64KiB}}\n  \
             action: offload\n  offload: {{redeem: false}}\n",
            self.bucket.yaml(),
            self.more,
            self.stem
        )
    }

    fn yaml(&self) -> String {
        let servers = self.kafka.bootstrap();
        format!(
            "cluster: {{bootstrap_servers: ['{servers}']}}\n{}",
            self.claims()
        )
    }

    fn topic(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Topic {
        let name = format!("{}-{name}", self.stem);
        self.kafka.create_topic(&name, partitions, 1, configs)
    }

    fn start(&self) -> Sizegate {
        Sizegate::start(self.kafka, &self.claims())
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        sizegate(&[&["claim"], arguments].concat(), &self.yaml())
    }

    fn json(&self, arguments: &[&str], code: i32) -> serde_json::Value {
        let ran = self.run(&[arguments, &["--output", "json"]].concat());
        assert_eq!(ran.code, code, "{arguments:?}: {ran:?}");
        ran.json()
    }
}

fn produce(sizegate: &Sizegate, parts: &[Part]) {
    for response in Connection::open(sizegate.bootstrap()).produce(9, -1, parts) {
        assert_eq!(response.code, 0, "{:?}", response.text);
    }
}

#[test]
fn one_record_is_inspected_and_redeemed_by_its_offset() {
    let setup = Setup::new(Server::Moto, "");
    let topic = setup.topic("one", 2, &[]);
    let proxy = setup.start();
    let value = random(300_000, 1);
    let large = Record::value(value.clone())
        .key("k")
        .header("content-type", "image/tiff");
    let first = batch([Record::value("small"), large.clone()]).build();
    let second = batch([Record::of_a(200_000), large])
        .codec(Codec::Gzip)
        .build();
    produce(&proxy, &[Part::at(&topic, 1, first)]);
    produce(&proxy, &[Part::at(&topic, 1, second)]);
    let name = topic.name.as_str();

    let seen = setup.json(&["inspect", name, "1", "1"], 0);
    assert_eq!(seen["ticket"]["size"], 300_000);
    assert_eq!(seen["ticket"]["contentType"], "image/tiff");
    assert_eq!(seen["signed_by"], "k1");
    assert_eq!(seen["object"]["there"], true);
    assert_eq!(seen["object"]["bytes"], 300_000);
    let seen = setup.json(&["inspect", name, "1", "2"], 0);
    assert_eq!(
        (&seen["codec"], &seen["ticket"]["enc"]),
        (&"gzip".into(), &"zstd".into())
    );
    let table = setup.run(&["inspect", name, "1", "1"]);
    for words in [
        "ticket        s3://",
        "original      300,000 bytes, image/tiff",
        "there, 300,000 bytes",
    ] {
        assert!(table.out.contains(words), "{words}: {table:?}");
    }
    let plain = setup.run(&["inspect", name, "1", "0"]);
    assert_eq!(plain.code, 1);
    assert!(
        plain.out.contains("none: the value is the record's own"),
        "{plain:?}"
    );
    let beyond = setup.run(&["inspect", name, "1", "4"]);
    assert_eq!(beyond.code, 2);
    assert!(
        beyond
            .err
            .contains("holds offsets from 0 up to, not including, 4"),
        "{beyond:?}"
    );
    let nowhere = setup.run(&["inspect", "nowhere", "0", "0"]);
    assert_eq!(nowhere.code, 2);
    assert!(
        nowhere.err.contains("there is no topic nowhere"),
        "{nowhere:?}"
    );

    let dir = new_dir("redeemed");
    let out = dir.join("value").display().to_string();
    for offset in ["1", "3"] {
        let ran = setup.run(&["redeem", name, "1", offset, "--out", &out]);
        assert_eq!(ran.code, 0, "{ran:?}");
        assert!(std::fs::read(&out).unwrap() == value);
    }
    let ran = setup.run(&["redeem", name, "1", "2"]);
    assert_eq!((ran.code, ran.out), (0, "A".repeat(200_000)));
    let ran = setup.run(&["redeem", name, "1", "0"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "small"));

    let key = setup
        .bucket
        .objects()
        .into_iter()
        .find(|object| object.size == 300_000);
    setup.bucket.delete(&key.unwrap().key);
    let gone = setup.run(&["redeem", name, "1", "1"]);
    assert_eq!((gone.code, gone.out.as_str()), (1, ""));
    assert!(gone.err.contains("NoSuchKey"), "{gone:?}");
    assert_eq!(
        setup.json(&["inspect", name, "1", "1"], 1)["object"]["there"],
        false
    );
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn verify_tells_sound_missing_corrupt_and_forged_tickets_apart() {
    let setup = Setup::new(Server::Moto, "");
    let topic = setup.topic("verify", 2, &[]);
    let proxy = setup.start();
    for n in 0..6 {
        let sent = batch([
            Record::value("small"),
            Record::of_random(100_000 + n, n as u64),
        ]);
        let sent = sent.codec(Codec::ALL[n % Codec::ALL.len()]).build();
        produce(&proxy, &[Part::at(&topic, n as i32 % 2, sent)]);
    }
    let name = topic.name.as_str();
    let found = setup.json(&["verify", name], 0);
    let counts = &found["counts"];
    assert_eq!(
        (&counts["records"], &counts["tickets"]),
        (&12.into(), &6.into())
    );
    assert_eq!(
        (&counts["sound"], &counts["sound_bytes"]),
        (&6.into(), &600_015.into())
    );

    // Each of the three kinds once: random values do not shrink, so each object is its value.
    let objects = setup.bucket.objects();
    let of = |size: u64| {
        &objects
            .iter()
            .find(|object| object.size == size)
            .unwrap()
            .key
    };
    setup.bucket.delete(of(100_000));
    setup.bucket.put(of(100_001), "shorter");
    setup.bucket.put(of(100_002), &"x".repeat(100_002));
    let forged = Record::value("{}").header("x-claim-check", "1;k1;AAAAAAAAAAAAAAAAAAAAAA");
    let mut past = Connection::open(setup.kafka.bootstrap());
    let responses = past.produce(9, -1, &[Part::at(&topic, 0, batch([forged]).build())]);
    assert_eq!(responses[0].code, 0);

    let found = setup.json(&["verify", name], 1);
    let counts = &found["counts"];
    let three =
        ["sound", "missing", "corrupt", "forged", "unknown"].map(|kind| counts[kind].as_u64());
    assert_eq!(three, [3, 1, 2, 1, 0].map(Some), "{found:#}");
    let mut bad: Vec<(i64, i64, &str)> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|bad| {
            let number = |field: &str| bad[field].as_i64().unwrap();
            (
                number("partition"),
                number("offset"),
                bad["class"].as_str().unwrap(),
            )
        })
        .collect();
    bad.sort_unstable();
    assert_eq!(
        bad,
        [
            (0, 1, "missing"),
            (0, 3, "corrupt"),
            (0, 6, "forged"),
            (1, 1, "corrupt")
        ]
    );
    // What has the right size is only found by reading it.
    let sizes = setup.json(&["verify", name, "--sizes-only"], 1);
    assert_eq!(sizes["counts"]["corrupt"], 1);
    let table = setup.run(&["verify", name]);
    assert!(table.out.contains("DigestMismatch"), "{table:?}");
}

/// For a person at a terminal, on one line that is gone at the end.
#[test]
fn what_is_long_says_at_a_terminal_how_far_it_has_come() {
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let topic = kafka.topic("progress", 1, &[]);
    let claims = format!(
        "claim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\n\
         rules:\n- name: large\n  topics: ['{}']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n",
        s3.yaml(),
        topic.name
    );
    let proxy = Sizegate::start(kafka, &claims);
    for n in 0..12 {
        let sent = batch([Record::of_random(70_000, 800 + n)]).build();
        produce(&proxy, &[Part::new(&topic, sent)]);
    }
    s3.always("GET", Some(Fault::Late));
    let dir = new_dir("terminal");
    let file = dir.join("sizegate.yaml");
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n{claims}",
        kafka.bootstrap()
    );
    std::fs::write(&file, yaml).unwrap();
    // Eight are read at once: with the ninth a second is over.
    let output = std::process::Command::new("python3")
        .args([
            "-c",
            "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)",
        ])
        .arg(env!("CARGO_BIN_EXE_sizegate"))
        .args(["claim", "verify", &topic.name, "--config"])
        .arg(&file)
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}");
    let said = format!("\r{}-0: offset ", topic.name);
    assert!(
        out.contains(&said) && out.contains(" tickets looked at, 0 without an object"),
        "{out}"
    );
    let (_, table) = out.rsplit_once('\r').unwrap();
    assert!(
        out.contains("sound") && !table.contains("looked at"),
        "{out}"
    );
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn orphans_are_objects_without_a_ticket_that_had_time_to_get_one() {
    let setup = Setup::new(Server::Moto, "  grace: 1s\n");
    let topic = setup.topic("orphans", 1, &[]);
    let proxy = setup.start();
    for n in 0..3 {
        produce(
            &proxy,
            &[Part::new(
                &topic,
                batch([Record::of_random(100_000, n)]).build(),
            )],
        );
    }
    let name = topic.name.as_str();
    let none = setup.json(&["orphans"], 0);
    assert_eq!(none["topics"][0]["topic"], name);
    assert_eq!(
        (
            &none["topics"][0]["objects"],
            &none["topics"][0]["with_ticket"]
        ),
        (&3.into(), &3.into())
    );
    // One that nobody named, and one of a topic that is gone.
    let key = setup.bucket.objects()[0].key.clone();
    let folder = key.rsplit_once('/').unwrap().0;
    let nobodys = format!("{folder}/{}", "0".repeat(64));
    setup.bucket.put(&nobodys, "nobody's");
    setup
        .bucket
        .put(&nobodys.replace(name, "gone"), "of a topic that is gone");
    // Two are found when they are older than the grace period; moto's clock has seconds.
    let found = eventually(PATIENCE, "both are old enough", || {
        let ran = setup.run(&["orphans", "--output", "json"]);
        let found = ran.json();
        let old = found["topics"]
            .as_array()
            .unwrap()
            .iter()
            .all(|of| of["young"] == 0);
        old.then_some((ran.code, found))
    });
    assert_eq!(found.0, 1);
    let topics = found.1["topics"].as_array().unwrap().clone();
    let of = |name: &str| {
        topics
            .iter()
            .find(|of| of["topic"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(
        (&of(name)["orphans"], &of(name)["with_ticket"]),
        (&1.into(), &3.into())
    );
    assert_eq!(of(name)["orphan_bytes"], 8);
    assert_eq!(of(name)["keys"][0], nobodys.trim_start_matches("all/"));
    assert_eq!(of("gone (no such topic)")["orphans"], 1);
    let one = setup.json(&["orphans", name], 1);
    assert_eq!(one["topics"].as_array().unwrap().len(), 1);
}

#[test]
fn doctor_tries_what_the_proxy_needs_and_says_what_to_do() {
    for server in Server::ALL {
        let setup = Setup::new(server, "");
        // 7 days each, as Kafka has it; the tests' brokers keep records for ever.
        let week = [("retention.ms", "604800000"), ("segment.ms", "604800000")];
        setup.topic("fine", 1, &week);
        let fine = setup.json(&["doctor"], 0);
        let checks = fine["checks"].as_array().unwrap();
        let names: Vec<&str> = checks
            .iter()
            .map(|check| check["name"].as_str().unwrap())
            .collect();
        assert_eq!(
            names,
            [
                "topics", "keys", "write", "read", "again", "missing", "clock", "list", "delete"
            ],
            "{server:?}"
        );
        assert!(
            checks.iter().all(|check| check["verdict"] == "fine"),
            "{fine:#}"
        );
        assert_eq!(
            setup.bucket.objects(),
            [],
            "{server:?}: it takes its object away again"
        );

        setup.topic("compacted", 1, &[("cleanup.policy", "compact")]);
        setup.topic("for-ever", 1, &[("retention.ms", "-1")]);
        let ran = setup.run(&["doctor"]);
        assert_eq!(ran.code, 1);
        for words in [
            "compacted",
            "retention.ms",
            "Take ",
            "keeps records for ever",
        ] {
            assert!(ran.out.contains(words), "{words}: {ran:?}");
        }
    }
}

#[test]
fn doctor_says_what_is_wrong_with_a_store() {
    // moto takes any credentials, s3s-fs any bucket.
    let (setup, moto) = (Setup::new(Server::S3sFs, ""), Setup::new(Server::Moto, ""));
    let with = |setup: &Setup, from: &str, to: &str| {
        let yaml = setup.yaml().replace(from, to);
        let ran = sizegate(&["claim", "doctor"], &yaml);
        assert_eq!(ran.code, 1, "{ran:?}");
        ran.out
    };
    let key = with(
        &setup,
        "access_key_id: access-key",
        "access_key_id: another",
    );
    assert!(key.contains("Give the right credentials"), "{key}");
    let bucket = with(
        &moto,
        &format!("s3://{}", moto.bucket.name),
        "s3://no-such-bucket",
    );
    assert!(bucket.contains("Create the bucket"), "{bucket}");
    // Nobody is there, and what is no endpoint at all.
    let nobody = with(&setup, "http://127.0.0.1:", "http://127.0.0.2:");
    assert!(nobody.contains("skipped"), "{nobody}");
    let yaml = setup
        .yaml()
        .replace("http://127.0.0.1:", "http://127.0.0.1:9");
    let ran = sizegate(&["claim", "doctor"], &yaml);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("`endpoint` is no endpoint"), "{ran:?}");
}

/// Without the right to list, what is missing is denied: a lost object would hold its partition for ever.
#[test]
fn doctor_tells_a_missing_right_to_list_before_it_pins_a_partition() {
    let kafka = Kafka::shared("4.4.0");
    kafka.topic(
        "claims",
        1,
        &[("retention.ms", "604800000"), ("segment.ms", "604800000")],
    );
    let checks = |s3: &S3, code: i32| {
        let yaml = format!(
            "cluster: {{bootstrap_servers: ['{}']}}\nclaim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\n",
            kafka.bootstrap(),
            s3.yaml()
        );
        let ran = sizegate(&["claim", "doctor", "--output", "json"], &yaml);
        assert_eq!(ran.code, code, "{ran:?}");
        ran.json()["checks"].as_array().unwrap().clone()
    };
    let of = |checks: &[serde_json::Value], name: &str| {
        let found = checks.iter().find(|check| check["name"] == name).unwrap();
        let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
        (text("verdict"), text("said"), text("remedy"))
    };
    let s3 = S3::start();
    // No rule offloads: that alone is a warning.
    assert_eq!(of(&checks(&s3, 1), "missing").0, "fine");
    s3.deny_missing();
    let denied = checks(&s3, 1);
    let (verdict, said, remedy) = of(&denied, "missing");
    assert_eq!(verdict, "error");
    assert!(
        said.contains("AccessDenied") && said.contains("cannot be told"),
        "{said}"
    );
    assert!(
        remedy.contains("s3:ListBucket on the bucket itself"),
        "{remedy}"
    );
    for (name, verdict) in [("write", "fine"), ("read", "fine"), ("list", "warning")] {
        assert_eq!(of(&denied, name).0, verdict, "{name}");
    }
}

/// As far as a scripted endpoint shows: there is no server of Google's to test with.
#[test]
fn a_google_store_is_tried_and_its_credentials_are_asked_for() {
    let kafka = Kafka::shared("4.4.0");
    let claims = |store: &str| {
        format!(
            "claim_check:\n{store}  keys: [{{id: k1, secret: '{SECRET}'}}]\n\
             rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n"
        )
    };
    let doctor = |store: &str, code: i32| {
        let servers = kafka.bootstrap();
        let yaml = format!(
            "cluster: {{bootstrap_servers: ['{servers}']}}\n{}",
            claims(store)
        );
        let ran = sizegate(&["claim", "doctor"], &yaml);
        assert_eq!(ran.code, code, "{ran:?}");
        format!("{}{}", ran.out, ran.err)
    };
    let google = S3::start();
    let topic = kafka.topic("claims", 1, &[]);
    let proxy = Sizegate::start(kafka, &claims(&google.google_yaml()));
    produce(
        &proxy,
        &[Part::new(
            &topic,
            batch([Record::of_random(100_000, 3)]).build(),
        )],
    );
    assert_eq!(google.objects(), 1);
    let read = crate::support::admin::fetch_stored(&proxy.bootstrap(), &topic.name, 0, 1 << 20);
    assert!(read.windows(100_000).any(|part| part == random(100_000, 3)));
    let fine = doctor(&google.google_yaml(), 1);
    for words in [
        "was written",
        "is not written twice",
        "said to be missing",
        "can be listed",
    ] {
        assert!(fine.contains(words), "{words}: {fine}");
    }
    google.always("PUT", Some(Fault::Error(401, "AuthenticationRequired")));
    let refused = doctor(&google.google_yaml(), 1);
    assert!(refused.contains("Give the right credentials"), "{refused}");
    // What the account's file is not, or is not there.
    for (option, words) in [
        ("service_account: /no/such/file.json", "/no/such/file.json"),
        ("service_account_key: 'no json'", "claim_check.store"),
        (
            "base_url: 'no url', service_account_key: '{}'",
            "`base_url` is no endpoint",
        ),
    ] {
        let said = doctor(
            &format!("  store: gs://bucket/claims\n  store_options: {{{option}}}\n"),
            2,
        );
        assert!(said.contains(words), "{option}: {said}");
    }
}

/// An endpoint that is none panicked at the first request where it came from the environment.
#[test]
fn an_endpoint_of_the_environment_is_checked_like_one_of_the_configuration() {
    let dir = new_dir("environment");
    let file = dir.join("sizegate.yaml");
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['127.0.0.1:1']}}\nclaim_check:\n  store: s3://bucket/claims\n  \
         keys: [{{id: k1, secret: '{SECRET}'}}]\n"
    );
    std::fs::write(&file, yaml).unwrap();
    for key in ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .args(["claim", "verify", "any", "--config"])
            .arg(&file)
            .env(key, "127.0.0.1:9000")
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{err}");
        assert!(err.contains(&format!("`{key}` is no endpoint")), "{err}");
    }
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn retention_is_compared_with_what_every_topic_needs() {
    let setup = Setup::new(Server::Moto, "");
    let day = |days: u64| (days * 86_400_000).to_string();
    let keeps = |retention: &str, segment: &str| {
        vec![
            ("retention.ms", retention.to_owned()),
            ("segment.ms", segment.to_owned()),
        ]
    };
    for (name, configs) in [
        ("week", keeps(&day(7), &day(7))),
        ("nearly", keeps(&day(8), &day(7))),
        ("long", keeps(&day(9), &day(7))),
        ("for-ever", keeps("-1", &day(7))),
    ] {
        let configs: Vec<(&str, &str)> = configs
            .iter()
            .map(|(key, value)| (*key, value.as_str()))
            .collect();
        setup.topic(name, 1, &configs);
    }
    setup.topic("compacted", 1, &[("cleanup.policy", "compact")]);
    let found = setup.json(&["retention-check"], 1);
    assert_eq!(found["retention_seconds"], 16 * 86_400);
    let topics = found["topics"].as_array().unwrap();
    let of = |name: &str| {
        let topic = format!("{}-{name}", setup.stem);
        let found = topics
            .iter()
            .find(|of| of["topic"] == topic.as_str())
            .unwrap();
        (
            found["verdict"].as_str().unwrap(),
            found["margin_seconds"].as_i64(),
        )
    };
    assert_eq!(of("week"), ("enough", Some(86_400)));
    assert_eq!(of("nearly"), ("narrow", Some(0)));
    assert_eq!(of("long"), ("short", Some(-86_400)));
    assert_eq!(of("for-ever"), ("short", None));
    assert_eq!(of("compacted"), ("compacted", None));
    // A consumer that is a day late needs a day more.
    let late = setup.json(&["retention-check", "--lag", "1d"], 1);
    let week = late["topics"]
        .as_array()
        .unwrap()
        .iter()
        .find(|of| of["topic"] == format!("{}-week", setup.stem).as_str());
    assert_eq!(week.unwrap()["verdict"], "narrow");
}

#[test]
fn capacity_gives_the_published_account_and_takes_every_price() {
    let rates = [
        "claim",
        "capacity",
        "--events-per-day",
        "1000000",
        "--value-bytes",
        "307206",
    ];
    let run = |more: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .args(rates)
            .args(more)
            .output()
            .unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), out)
    };
    let (code, out) = run(&[]);
    assert_eq!(code, 0, "{out}");
    let docs =
        std::fs::read_to_string(crate::support::programs::repo().join("docs/claim-check.md"));
    assert!(
        docs.unwrap().contains(out.trim_end()),
        "docs/claim-check.md does not show:\n{out}"
    );
    for (what, size) in [
        ("Kafka, values", "6.45 TB"),
        ("Kafka, bare tickets", "4.89 GB"),
        ("Kafka, tickets in batches of 10", "6.60 GB"),
        ("Kafka, each ticket in a batch of its own", "7.75 GB"),
        ("store, a day", "307 GB"),
    ] {
        let line = out.lines().find(|line| line.starts_with(what));
        assert!(
            line.is_some_and(|line| line.contains(size)),
            "{what} {size}: {out}"
        );
    }
    assert!(!out.contains("A MONTH"));
    let (code, out) = run(&["--kafka-gb-month", "0.1", "--output", "json"]);
    let account: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 0);
    assert_eq!(account["account"]["costs"]["without"], 645.1326);
    assert_eq!(run(&["--puts-1000", "-1"]).0, 64);
    assert_eq!(run(&["--kafka-gb-month", "NaN"]).0, 64);
}

#[test]
fn without_a_claim_check_or_a_cluster_it_says_so() {
    let none = sizegate(
        &["claim", "doctor"],
        "cluster: {bootstrap_servers: ['127.0.0.1:1']}\n",
    );
    assert_eq!(none.code, 64);
    assert!(none.err.contains("has no claim_check"), "{none:?}");
    let dir = new_dir("claims");
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['127.0.0.1:1']}}\nclaim_check:\n  store: file://{}\n  \
         keys: [{{id: k1, secret: '{SECRET}'}}]\n",
        dir.display()
    );
    for arguments in [
        &["claim", "doctor"][..],
        &["claim", "verify", "t"],
        &["claim", "inspect", "t", "0", "0"],
        &["claim", "redeem", "t", "0", "0"],
        &["claim", "orphans"],
        &["claim", "retention-check"],
    ] {
        let ran = sizegate(arguments, &yaml);
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (2, ""),
            "{arguments:?}: {ran:?}"
        );
        assert!(ran.err.contains("127.0.0.1:1"), "{ran:?}");
    }
    let _ = std::fs::remove_dir_all(&dir);
}
