//! What is allowed and most likely not meant, or known to hurt. `check` prints it; `run` logs it.

use super::{Advertise, BatchLimit, Config, SaslMechanism, size_text};
use crate::policy::BATCHING_BYTES;

impl Config {
    /// Advice on this configuration, one sentence or two each; usually none.
    pub fn advice(&self) -> Vec<String> {
        let mut advice = Vec::new();
        self.advise_on_address(&mut advice);
        self.advise_on_password(&mut advice);
        self.advise_on_small_batches(&mut advice);
        advice
    }

    fn advise_on_address(&self, advice: &mut Vec<String>) {
        if let Advertise::NodePorts { host, .. } = &self.listener.advertise {
            let local = host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|ip: std::net::IpAddr| ip.is_loopback());
            if local && !self.listener.bind.ip().is_loopback() {
                advice.push(format!(
                    "listener.advertised_host is `{host}`, but listener.bind is `{}`: clients on other machines would \
                     be sent to themselves",
                    self.listener.bind
                ));
            }
        }
    }

    fn advise_on_password(&self, advice: &mut Vec<String>) {
        let plain = self
            .cluster
            .admin_sasl
            .as_ref()
            .is_some_and(|sasl| sasl.mechanism == SaslMechanism::Plain);
        if plain && self.cluster.tls.is_none() {
            advice.push(
                "cluster.admin.sasl.mechanism is `PLAIN` without cluster.tls: the password travels as it is".to_owned(),
            );
        }
    }

    fn advise_on_small_batches(&self, advice: &mut Vec<String>) {
        let limits = self
            .rules
            .iter()
            .map(|rule| (format!("rule `{}`", rule.name), &rule.limits));
        for (of, limits) in std::iter::once(("`limits`".to_owned(), &self.limits)).chain(limits) {
            let small = match limits.batch_bytes {
                Some(BatchLimit::Bytes(bytes)) if bytes < BATCHING_BYTES => bytes,
                _ => continue,
            };
            advice.push(format!(
                "{of} has batch_bytes {}: librdkafka, franz-go, kafka-go and sarama gather up to about 1 MiB in a batch \
                 and lose all of it when it is refused; record_bytes refuses large records without that",
                size_text(small)
            ));
        }
    }
}
