//! What a topic costs in Kafka with its values in it, and with tickets in their place and the values in a store. Pure.
//!
//! Arithmetic alone: the rates, the times and every price are the asker's. Bytes are exact up to rounding down; money is
//! in whatever unit the prices are.

use serde::Serialize;

use crate::batch::{BATCH_HEADER_BYTES, varint_bytes};

/// Days of a month, for prices by the month.
const MONTH_DAYS: f64 = 30.0;
/// Prices are by decimal gigabytes.
const GB: f64 = 1e9;
const THOUSAND: f64 = 1e3;
/// A record's attributes, timestamp delta (in one batch, within a minute) and offset delta, key and value lengths apart.
const RECORD_FIELDS_BYTES: u64 = 1 + 2 + 1;

/// What is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Rates {
    /// Records a day whose values are offloaded.
    pub events_per_day: u64,
    /// Bytes of one such value.
    pub value_bytes: u64,
    /// Bytes of a record's key.
    pub key_bytes: u64,
    /// Bytes of a ticket.
    pub ticket_bytes: u64,
    /// Bytes of the header that signs it, encoded.
    pub mark_bytes: u64,
    /// Records that travel in one batch.
    pub records_per_batch: u64,
    /// Copies that Kafka keeps.
    pub replication: u64,
    /// Days that Kafka keeps them.
    pub kafka_days: u64,
    /// Days that the store keeps an object.
    pub object_days: u64,
    /// Times that a value is read.
    pub reads: u64,
}

/// Prices; 0 where one is not of interest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Prices {
    /// Of a GB on a broker's disk for a month.
    pub kafka_gb_month: f64,
    /// Of a GB in the store for a month.
    pub store_gb_month: f64,
    /// Of a thousand writes to the store.
    pub puts_1000: f64,
    /// Of a thousand reads from it.
    pub gets_1000: f64,
    /// Of a GB that travels between zones for replication.
    pub replicated_gb: f64,
}

/// The account.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Account {
    /// Of values in Kafka, bare.
    pub kafka_without_bytes: u64,
    /// Of tickets alone.
    pub kafka_tickets_bytes: u64,
    /// Of tickets as records in batches of as many as was said.
    pub kafka_with_bytes: u64,
    /// Of tickets as records, each in a batch of its own.
    pub kafka_with_alone_bytes: u64,
    /// That go into the store each day.
    pub store_bytes_per_day: u64,
    /// That lie there once the first objects go.
    pub store_bytes: u64,
    /// By the month; `None` where no price was given.
    pub costs: Option<Costs>,
}

/// By the month.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// Without a claim check: disks and replication.
    pub without: f64,
    /// Kafka's part with one.
    pub with_kafka: f64,
    /// The store's disks.
    pub with_store: f64,
    /// Its requests.
    pub with_requests: f64,
}

impl Costs {
    /// All of it with a claim check.
    pub fn with(&self) -> f64 {
        self.with_kafka + self.with_store + self.with_requests
    }
}

impl Rates {
    /// One record of a ticket, as encoded.
    fn record_bytes(&self) -> u64 {
        let length = |bytes: u64| varint_bytes(u32::try_from(bytes).unwrap_or(u32::MAX));
        let body = [
            RECORD_FIELDS_BYTES,
            length(self.key_bytes),
            self.key_bytes,
            length(self.ticket_bytes),
            self.ticket_bytes,
            // The headers' count.
            1,
            self.mark_bytes,
        ];
        let body = body.into_iter().fold(0u64, u64::saturating_add);
        body.saturating_add(length(body))
    }

    /// Kept at once in Kafka, of so many bytes a record.
    fn in_kafka(&self, bytes: u64) -> u64 {
        let kept = self.kafka_days.saturating_mul(self.replication);
        bytes
            .saturating_mul(self.events_per_day)
            .saturating_mul(kept)
    }

    /// Records in batches of so many.
    fn in_batches(&self, records: u64) -> u64 {
        let headers = (BATCH_HEADER_BYTES as u64)
            .saturating_mul(self.events_per_day)
            .checked_div(records.max(1))
            .unwrap_or_default();
        let kept = self.kafka_days.saturating_mul(self.replication);
        self.in_kafka(self.record_bytes())
            .saturating_add(headers.saturating_mul(kept))
    }

    /// The account.
    pub fn account(&self, prices: &Prices) -> Account {
        let day = self.events_per_day.saturating_mul(self.value_bytes);
        let account = Account {
            kafka_without_bytes: self.in_kafka(self.value_bytes),
            kafka_tickets_bytes: self.in_kafka(self.ticket_bytes),
            kafka_with_bytes: self.in_batches(self.records_per_batch),
            kafka_with_alone_bytes: self.in_batches(1),
            store_bytes_per_day: day,
            store_bytes: day.saturating_mul(self.object_days),
            costs: None,
        };
        let costs = (*prices != Prices::default()).then(|| self.costs(prices, &account));
        Account { costs, ..account }
    }

    fn costs(&self, prices: &Prices, account: &Account) -> Costs {
        let gb = |bytes: u64| bytes as f64 / GB;
        let a_month = self.events_per_day as f64 * MONTH_DAYS;
        // Each copy but the first crosses to another broker once.
        let copies = self.replication.saturating_sub(1) as f64;
        let kafka = |kept_bytes: u64| {
            let copies_kept = self
                .kafka_days
                .max(1)
                .saturating_mul(self.replication.max(1));
            let a_day = gb(kept_bytes) / copies_kept as f64;
            gb(kept_bytes) * prices.kafka_gb_month
                + a_day * MONTH_DAYS * copies * prices.replicated_gb
        };
        Costs {
            without: kafka(account.kafka_without_bytes),
            with_kafka: kafka(account.kafka_with_bytes),
            with_store: gb(account.store_bytes) * prices.store_gb_month,
            with_requests: a_month / THOUSAND
                * (prices.puts_1000 + self.reads as f64 * prices.gets_1000),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    /// The worked example: a million events of 307,206 bytes a day, three copies for a week.
    fn example() -> Rates {
        Rates {
            events_per_day: 1_000_000,
            value_bytes: 307_206,
            key_bytes: 23,
            ticket_bytes: 233,
            mark_bytes: 42,
            records_per_batch: 10,
            replication: 3,
            kafka_days: 7,
            object_days: 16,
            reads: 2,
        }
    }

    #[test]
    fn the_worked_example_comes_out_as_published() {
        let account = example().account(&Prices::default());
        // 6.45 TB without.
        assert_eq!(account.kafka_without_bytes, 307_206 * 1_000_000 * 3 * 7);
        assert_eq!(account.kafka_without_bytes, 6_451_326_000_000);
        // 4.9 GB of bare tickets.
        assert_eq!(account.kafka_tickets_bytes, 4_893_000_000);
        // 6.6 to 7.7 GB as records.
        let tenths = |bytes: u64| (bytes + 50_000_000) / 100_000_000;
        assert_eq!(tenths(account.kafka_with_bytes), 66);
        assert_eq!(tenths(account.kafka_with_alone_bytes), 77);
        // 307 GB a day.
        assert_eq!(account.store_bytes_per_day, 307_206_000_000);
        assert_eq!(account.store_bytes, 307_206_000_000 * 16);
        assert_eq!(account.costs, None);
    }

    #[test]
    fn every_price_counts_and_nothing_else() {
        let prices = Prices {
            kafka_gb_month: 0.1,
            store_gb_month: 0.02,
            puts_1000: 0.005,
            gets_1000: 0.0004,
            replicated_gb: 0.01,
        };
        let costs = example().account(&prices).costs.unwrap();
        let near = |found: f64, expected: f64| {
            assert!((found - expected).abs() < 0.01, "{found} {expected}")
        };
        // 6,451.326 GB at 0.1, and 307.206 GB a day, twice, 30 times, at 0.01.
        near(costs.without, 645.1326 + 307.206 * 2.0 * 30.0 * 0.01);
        near(costs.with_store, 307.206 * 16.0 * 0.02);
        near(costs.with_requests, 30_000.0 * (0.005 + 2.0 * 0.0004));
        near(
            costs.with(),
            costs.with_kafka + costs.with_store + costs.with_requests,
        );
        let free = Prices {
            puts_1000: 0.0,
            gets_1000: 0.0,
            ..prices
        };
        near(example().account(&free).costs.unwrap().with_requests, 0.0);
    }
}
