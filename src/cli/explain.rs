//! `sizegate explain`: which limits a topic has, and who would refuse a record of given sizes.

mod files;
mod set;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use clap::builder::PossibleValuesParser;

use self::files::Content;
use super::check::Output;
use super::{ConfigArgs, FAILED, FINDINGS, FINE, USAGE, fail, fail_on_mistakes, print};
use crate::cluster::{Cluster, Wanted};
use crate::config::Config;
use crate::explain::{Explanation, Facts, Question, explain};
use crate::findings::{ClusterFacts, Commands, Comparison, TopicFacts};
use crate::vocabulary::Codec;

/// Arguments of `explain`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate explain orders --config sizegate.yaml
  sizegate explain orders --bootstrap-servers localhost:9092 --value-bytes 2000000
  sizegate explain orders --config sizegate.yaml --value-bytes 1880000 --compressed-bytes 513774
  sizegate explain orders --config f.yaml --value-bytes 2000000 --max-request-size 1000000
  sizegate explain orders --config f.yaml --value-bytes 1000000 --client librdkafka
  sizegate explain orders --config sizegate.yaml --value-file order.json --compression zstd
  sizegate explain orders --config sizegate.yaml --value-bytes 2000000 --client connect
  sizegate explain orders --config sizegate.yaml --set max.message.bytes=20971520

Exit codes: 0 it passes (or only the limits were asked for), 1 someone refuses it, 2 the topic's
limits could not be read, 64 bad config or usage.")]
pub struct ExplainArgs {
    /// The topic
    #[arg(value_name = "TOPIC")]
    pub topic: String,
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Bytes of the record's value; null if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub value_bytes: Option<u64>,
    /// The record's value itself: its size, and with --compression what the codec makes of it
    #[arg(long, value_name = "FILE", conflicts_with = "value_bytes")]
    pub value_file: Option<PathBuf>,
    /// The record's key itself
    #[arg(long, value_name = "FILE", conflicts_with = "key_bytes")]
    pub key_file: Option<PathBuf>,
    /// Compress these files as the producer would; another library's encoder may differ by a few percent
    #[arg(long, value_name = "CODEC", value_parser = PossibleValuesParser::new(codec_names()), conflicts_with = "compressed_bytes", requires = "value_file")]
    pub compression: Option<String>,
    /// Bytes of the record's key; null if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub key_bytes: Option<u64>,
    /// Bytes of all header names and values
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub headers_bytes: Option<u64>,
    /// How many headers share these bytes; 1 if not given
    #[arg(long, value_name = "N")]
    pub headers: Option<u32>,
    /// The batch as it travels compressed, its 61-byte header included; not compressed if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub compressed_bytes: Option<u64>,
    /// The producer's max.request.size, or its like in another client; the client's default if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub max_request_size: Option<u64>,
    /// A Java producer's buffer.memory; its default, 33554432, if not given
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size)]
    pub buffer_memory: Option<u64>,
    /// The client library; java if not given
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(crate::explain::client_names()))]
    pub client: Option<String>,
    /// The producer's client.id, which travels in each request; the client's default if not given
    #[arg(long, value_name = "ID")]
    pub client_id: Option<String>,
    /// Records of these sizes in one batch; 1 if not given
    #[arg(long, value_name = "N")]
    pub records: Option<u32>,
    /// Whether this config of the topic may be set, and what it would do to families; more than once
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Explains.
pub fn run(args: ExplainArgs) -> ExitCode {
    let is_json = args.output == Output::Json;
    let config = match args.config.load() {
        Ok(config) => config,
        Err(errors) => return fail_on_mistakes(is_json, &errors),
    };
    let ops = match set::ops(&args.set) {
        Ok(ops) => ops,
        Err(error) => {
            eprintln!("sizegate: {error}");
            return ExitCode::from(USAGE);
        }
    };
    let content = match content(&args) {
        Ok(content) => content,
        Err(error) => return fail(is_json, USAGE, &error),
    };
    let size = |bytes: &Option<Vec<u8>>| bytes.as_ref().map(|bytes| bytes.len() as u64);
    let mut question = Question {
        topic: args.topic,
        value_bytes: args.value_bytes.or(size(&content.value)),
        key_bytes: args.key_bytes.or(size(&content.key)),
        headers_bytes: args.headers_bytes,
        headers: args.headers,
        compressed_bytes: args.compressed_bytes,
        max_request_size: args.max_request_size,
        buffer_memory: args.buffer_memory,
        client: args.client,
        client_id: args.client_id,
        records: args.records,
    };
    if let Err(error) = usable(&question) {
        return fail(is_json, USAGE, &error);
    }
    if let Some(codec) = args.compression.as_deref().and_then(Codec::from_label) {
        let records = question.records.unwrap_or(1);
        match files::compressed_bytes(&content, records, codec, question.library()) {
            Ok(bytes) => question.compressed_bytes = bytes,
            Err(error) => return fail(is_json, USAGE, &error),
        }
    }
    let read = super::with_cluster(&config, async |cluster: &Cluster, commands: &Commands| {
        // The family's members and their limits are part of the response.
        let topics = cluster
            .list_topics()
            .await
            .map_err(|error| error.to_string())?;
        let mut topics = topics;
        if !args.set.is_empty() {
            // It may be one that is to be created.
            topics.push(question.topic.as_str().into());
        }
        let relatives = relatives(&config, &topics, &question.topic);
        let survey = cluster.survey(Wanted::Named(&relatives), commands).await;
        survey.map_err(|error| error.to_string())
    });
    let facts = match read {
        Ok(facts) => facts,
        Err(error) => {
            let text = format!("the cluster could not be read: {error}");
            return fail(is_json, FAILED, &text);
        }
    };
    if !ops.is_empty() {
        return set::run(&config, &facts, &question.topic, ops, args.output);
    }
    if facts.absent.contains(&question.topic) {
        let text = format!("the cluster has no topic {}", question.topic);
        return fail(is_json, FAILED, &text);
    }
    match response(&config, &facts, &question) {
        Ok(explanation) => {
            match args.output {
                Output::Table => print(&explanation.text()),
                Output::Json => print(&format!(
                    "{:#}\n",
                    serde_json::to_value(&explanation).unwrap_or_default()
                )),
            }
            let seen = facts
                .topic(&question.topic)
                .and_then(TopicFacts::batch_limit);
            ExitCode::from(match explanation.passes {
                Some(false) => FINDINGS,
                _ if seen.is_none() => FAILED,
                _ => FINE,
            })
        }
        Err(error) => fail(is_json, USAGE, &error),
    }
}

fn codec_names() -> Vec<&'static str> {
    Codec::ALL.iter().map(|codec| codec.label()).collect()
}

fn content(args: &ExplainArgs) -> Result<Content, String> {
    let read = |path: &Option<PathBuf>| path.as_deref().map(files::read).transpose();
    Ok(Content {
        key: read(&args.key_file)?,
        value: read(&args.value_file)?,
    })
}

/// What is wrong with a question, by the names of the flags. What says more of a record needs the record's sizes.
fn usable(question: &Question) -> Result<(), String> {
    let has_record = [
        question.value_bytes,
        question.key_bytes,
        question.headers_bytes,
        question.headers.map(u64::from),
    ]
    .iter()
    .any(Option::is_some);
    for (flag, is_given) in [
        ("--compressed-bytes", question.compressed_bytes.is_some()),
        ("--max-request-size", question.max_request_size.is_some()),
        ("--records", question.records.is_some()),
        ("--buffer-memory", question.buffer_memory.is_some()),
        ("--client", question.client.is_some()),
        ("--client-id", question.client_id.is_some()),
    ] {
        if is_given && !has_record {
            return Err(format!(
                "{flag} says nothing without a record: give --value-bytes, --key-bytes or --headers-bytes"
            ));
        }
    }
    question.check().map_err(|error| {
        let text = error.to_string();
        match text.split_once(' ') {
            Some((name, rest)) if name != "topic" => {
                format!("--{} {rest}", name.replace('_', "-"))
            }
            _ => text,
        }
    })
}

/// The topic, its family's topics, those of the families that it is a member of, and of the families that these have.
fn relatives(config: &Config, topics: &[Arc<str>], topic: &str) -> Vec<String> {
    let families = config.families.among(topics);
    let mut names = BTreeSet::from([topic.to_owned()]);
    let mains = families.of_member(topic);
    names.extend(mains.map(|family| family.main.to_string()));
    let mut open: Vec<String> = names.iter().cloned().collect();
    while let Some(main) = open.pop() {
        for member in families
            .of_main(&main)
            .iter()
            .flat_map(|family| &family.members)
        {
            if names.insert(member.topic.to_string()) {
                open.push(member.topic.to_string());
            }
        }
    }
    names.into_iter().collect()
}

fn response(
    config: &Config,
    facts: &ClusterFacts,
    question: &Question,
) -> Result<Explanation, String> {
    let comparison = Comparison::new(config, facts)?;
    let batch_limit_of = |topic: &str| Some(comparison.topic(topic)?.batch_limit()?.0);
    let ground = Facts {
        config,
        policy: &comparison.policy,
        topic: facts.topic(&question.topic),
        brokers: &facts.brokers,
        batch_limit_of: &batch_limit_of,
        unseen: facts.unseen.clone(),
    };
    explain(question, &ground).map_err(|error| error.to_string())
}
