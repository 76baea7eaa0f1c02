//! `sizegate claim capacity`: the account for given rates. Every price is an input; asks nobody.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::super::{FINE, USAGE};
use super::{Outcome, show};
use crate::claim::{Account, Prices, Rates};
use crate::cli::check::Output;
use crate::config::size;
use crate::text::{counted, grouped, row, table};

/// Arguments of `claim capacity`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim capacity --events-per-day 1000000 --value-bytes 307206
  sizegate claim capacity --events-per-day 1000000 --value-bytes 307206 --store-gb-month 0.023

GB and TB are decimal, months have 30 days. Prices are in any one currency.")]
pub struct CapacityArgs {
    /// Records a day whose values are offloaded
    #[arg(long, value_name = "N")]
    pub events_per_day: u64,
    /// Bytes of one such value
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub value_bytes: u64,
    /// Bytes of a record's key
    #[arg(long, value_name = "SIZE", value_parser = crate::config::any_size, default_value = "23")]
    pub key_bytes: u64,
    /// Bytes of a ticket; `claim inspect` shows one
    #[arg(long, value_name = "SIZE", value_parser = size, default_value = "233")]
    pub ticket_bytes: u64,
    /// Records that travel in one batch
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub records_per_batch: u64,
    /// Copies that Kafka keeps
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub replication: u64,
    /// Days that Kafka keeps records
    #[arg(long, value_name = "DAYS", default_value_t = 7)]
    pub kafka_days: u64,
    /// Days that the store keeps objects
    #[arg(long, value_name = "DAYS", default_value_t = 16)]
    pub object_days: u64,
    /// Times that a value is read
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub reads: u64,
    /// Price of a GB on brokers' disks for a month
    #[arg(long, value_name = "PRICE", default_value_t = 0.0)]
    pub kafka_gb_month: f64,
    /// Price of a GB in the store for a month
    #[arg(long, value_name = "PRICE", default_value_t = 0.0)]
    pub store_gb_month: f64,
    /// Price of a thousand writes to the store
    #[arg(long, value_name = "PRICE", default_value_t = 0.0)]
    pub puts_1000: f64,
    /// Price of a thousand reads from the store
    #[arg(long, value_name = "PRICE", default_value_t = 0.0)]
    pub gets_1000: f64,
    /// Price of a GB that is replicated to another zone
    #[arg(long, value_name = "PRICE", default_value_t = 0.0)]
    pub replicated_gb: f64,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// The header `x-claim-check` with a key's id of two letters, encoded.
const MARK_BYTES: u64 = 42;

pub(super) fn run(args: &CapacityArgs) -> ExitCode {
    let prices = Prices {
        kafka_gb_month: args.kafka_gb_month,
        store_gb_month: args.store_gb_month,
        puts_1000: args.puts_1000,
        gets_1000: args.gets_1000,
        replicated_gb: args.replicated_gb,
    };
    let all = [
        prices.kafka_gb_month,
        prices.store_gb_month,
        prices.puts_1000,
        prices.gets_1000,
        prices.replicated_gb,
    ];
    if all.iter().any(|price| !price.is_finite() || *price < 0.0) {
        let error = "a price is a number of 0 or more";
        return super::super::fail(args.output == Output::Json, USAGE, error);
    }
    let rates = Rates {
        events_per_day: args.events_per_day,
        value_bytes: args.value_bytes,
        key_bytes: args.key_bytes,
        ticket_bytes: args.ticket_bytes,
        mark_bytes: MARK_BYTES,
        records_per_batch: args.records_per_batch,
        replication: args.replication,
        kafka_days: args.kafka_days,
        object_days: args.object_days,
        reads: args.reads,
    };
    let account = rates.account(&prices);
    let outcome = Outcome {
        text: text(&rates, &account),
        json: json!({"rates": rates, "prices": prices, "account": account}),
        exit: FINE,
    };
    show(args.output, &outcome)
}

fn text(rates: &Rates, account: &Account) -> String {
    let mut text = format!(
        "{} of {} a day; Kafka keeps {} for {}, the store one for {}.\n\n",
        counted(rates.events_per_day, "value"),
        counted(rates.value_bytes, "byte"),
        counted(rates.replication, "copy"),
        counted(rates.kafka_days, "day"),
        counted(rates.object_days, "day")
    );
    let batched = format!("Kafka, tickets in batches of {}", rates.records_per_batch);
    let lines = [
        ("Kafka, values", account.kafka_without_bytes),
        ("Kafka, bare tickets", account.kafka_tickets_bytes),
        (batched.as_str(), account.kafka_with_bytes),
        (
            "Kafka, each ticket in a batch of its own",
            account.kafka_with_alone_bytes,
        ),
        ("store, a day", account.store_bytes_per_day),
        ("store, kept at once", account.store_bytes),
    ];
    let mut rows = vec![row(["WHAT", "SIZE", "BYTES"])];
    rows.extend(
        lines
            .iter()
            .map(|(what, bytes)| row([what, &decimal(*bytes), &grouped(*bytes)])),
    );
    text.push_str(&table(&rows));
    if let Some(costs) = &account.costs {
        let money = |amount: f64| format!("{amount:.2}");
        let rows = [
            row(["A MONTH", "PRICE"]),
            row(["without a claim check", &money(costs.without)]),
            row(["with: Kafka", &money(costs.with_kafka)]),
            row(["with: store", &money(costs.with_store)]),
            row(["with: the store's requests", &money(costs.with_requests)]),
            row(["with, in all", &money(costs.with())]),
        ];
        let _ = write!(text, "\n{}", table(&rows));
    }
    text
}

/// Three digits and a decimal unit.
fn decimal(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
    let mut amount = bytes as f64;
    let mut at = 0;
    // What would be rounded up to a thousand is the next unit's one.
    while amount >= 999.5 && at < UNITS.len().saturating_sub(1) {
        amount /= 1e3;
        at = at.saturating_add(1);
    }
    let digits = match amount {
        _ if at == 0 => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    let unit = UNITS.get(at).unwrap_or(&"B");
    format!("{amount:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn sizes_are_said_in_three_digits() {
        for (bytes, text) in [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.00 kB"),
            (999_499, "999 kB"),
            (999_500, "1.00 MB"),
            (6_451_326_000_000, "6.45 TB"),
            (4_893_000_000, "4.89 GB"),
            (307_206_000_000, "307 GB"),
            (u64::MAX, "18.4 EB"),
        ] {
            assert_eq!(decimal(bytes), text);
        }
    }
}
