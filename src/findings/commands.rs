//! The commands of Kafka's own tools that mend what was found, ready to be pasted.

use crate::config::Config;

/// Writes commands for one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    /// `--bootstrap-server …`, and where credentials are needed `--command-config …`.
    to: String,
    principal: String,
    /// How sizegate itself is told of this cluster: `--config …`.
    ours: String,
}

/// What a right is held on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// One topic, or all of them: `*`.
    Topic(&'a str),
    /// The cluster: its brokers' configs.
    Cluster,
}

impl Commands {
    /// For the cluster of a configuration.
    pub fn new(config: &Config) -> Self {
        let cluster = &config.cluster;
        let servers: Vec<String> = cluster
            .bootstrap_servers
            .iter()
            .map(ToString::to_string)
            .collect();
        let credentials = if cluster.admin_sasl.is_some() || cluster.tls.is_some() {
            " --command-config admin.properties"
        } else {
            ""
        };
        Self {
            to: format!("--bootstrap-server {}{credentials}", servers.join(",")),
            principal: match &cluster.admin_sasl {
                Some(sasl) => format!("User:{}", sasl.username),
                None if cluster.tls.is_some() => "<the proxy's principal>".to_owned(),
                None => "User:ANONYMOUS".to_owned(),
            },
            ours: ours(config, &servers),
        }
    }

    /// Aligns families.
    pub fn align(&self, detected: bool) -> String {
        let detected = if detected { " --detected" } else { "" };
        format!("sizegate align{}{detected} --apply", self.ours)
    }

    /// Sets configs of a topic.
    pub fn set_topic(&self, topic: &str, configs: &[(&str, u64)]) -> String {
        let configs: Vec<String> = configs
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        self.alter_topic(topic, &format!("--add-config {}", configs.join(",")))
    }

    /// Takes a topic's override back.
    pub fn unset_topic(&self, topic: &str, key: &str) -> String {
        self.alter_topic(topic, &format!("--delete-config {key}"))
    }

    /// Sets a topic's `compression.type`.
    pub fn set_compression(&self, topic: &str, value: &str) -> String {
        self.alter_topic(topic, &format!("--add-config compression.type={value}"))
    }

    /// Creates a topic.
    pub fn create_topic(&self, topic: &str, configs: &[(&str, &str)]) -> String {
        let configs: Vec<String> = configs
            .iter()
            .map(|(key, value)| format!(" --config {key}={value}"))
            .collect();
        format!(
            "kafka-topics.sh {} --create --topic {topic}{}",
            self.to,
            configs.concat()
        )
    }

    /// Sets a topic's `cleanup.policy`.
    pub fn set_cleanup(&self, topic: &str, value: &str) -> String {
        self.alter_topic(topic, &format!("--add-config cleanup.policy={value}"))
    }

    /// Sets the dynamic default of all brokers.
    pub fn set_brokers(&self, key: &str, value: u64) -> String {
        format!(
            "kafka-configs.sh {} --alter --entity-type brokers --entity-default --add-config {key}={value}",
            self.to
        )
    }

    /// Grants the control plane's principal what it lacks.
    pub fn allow(&self, operations: &[&str], on: Resource<'_>) -> String {
        let operations: Vec<String> = operations
            .iter()
            .map(|operation| format!("--operation {operation}"))
            .collect();
        let on = match on {
            Resource::Topic(topic) => format!("--topic '{topic}'"),
            Resource::Cluster => "--cluster".to_owned(),
        };
        format!(
            "kafka-acls.sh {} --add --allow-principal '{}' {} {on}",
            self.to,
            self.principal,
            operations.join(" ")
        )
    }

    fn alter_topic(&self, topic: &str, change: &str) -> String {
        format!(
            "kafka-configs.sh {} --alter --entity-type topics --entity-name {topic} {change}",
            self.to
        )
    }
}

/// A cluster that only the command line or the environment names is named again.
fn ours(config: &Config, servers: &[String]) -> String {
    let mut arguments = String::new();
    if let Some(file) = &config.origin.file {
        arguments.push_str(" --config ");
        arguments.push_str(&quoted(&file.display().to_string()));
    }
    if config.origin.has_servers || config.origin.file.is_none() {
        arguments.push_str(" --bootstrap-servers ");
        arguments.push_str(&quoted(&servers.join(",")));
    }
    arguments
}

/// One word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:,@%+=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_are_quoted_where_a_shell_would_read_more_than_the_word() {
        for (word, expected) in [
            ("sizegate.yaml", "sizegate.yaml"),
            ("/etc/size gate/a.yaml", "'/etc/size gate/a.yaml'"),
            ("it's", "'it'\\''s'"),
            ("$(reboot)", "'$(reboot)'"),
            ("~/a", "'~/a'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), expected);
        }
    }
}
