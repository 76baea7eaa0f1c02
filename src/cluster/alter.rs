//! Changes topics' settings: what `align --apply` asks for, and nothing else does.
//!
//! Invariant: all of one topic's changes go in one request, and what was not made is named.

use kafka_protocol::messages::IncrementalAlterConfigsRequest;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::protocol::StrBytes;

use super::Cluster;
use super::call_error::CallError;
use super::describe::PAGE;
use super::responses::failure_name;
use super::survey::{CALL_DEADLINE, FORBIDDEN, OPEN_DEADLINE, RESOURCE_TOPIC};
use crate::net::deadline_in;

/// `AlterConfigOp.OpType.SET`
const SET: i8 = 0;

/// One config of a topic to be set.
#[derive(Debug, Clone, Copy)]
pub struct Alteration<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The config.
    pub key: &'a str,
    /// Its new value.
    pub value: u64,
}

/// Why a topic was not altered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAltered {
    /// The topic.
    pub topic: String,
    /// The broker's error and its own words.
    pub why: String,
    /// A right is missing.
    pub is_forbidden: bool,
}

impl Cluster {
    /// Sets configs of topics, all of one topic at once; `validate_only` changes nothing. What was not altered is
    /// returned.
    ///
    /// # Errors
    /// No broker answered, or the one that did stopped: what was changed is then not known.
    pub async fn alter_topics(
        &self,
        changes: &[Alteration<'_>],
        validate_only: bool,
    ) -> Result<Vec<NotAltered>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let mut by_topic: Vec<(&str, Vec<AlterableConfig>)> = Vec::new();
        for change in changes {
            let config = AlterableConfig::default()
                .with_name(StrBytes::from_string(change.key.to_owned()))
                .with_config_operation(SET)
                .with_value(Some(StrBytes::from_string(change.value.to_string())));
            match by_topic
                .iter_mut()
                .find(|(topic, _)| *topic == change.topic)
            {
                Some((_, configs)) => configs.push(config),
                None => by_topic.push((change.topic, vec![config])),
            }
        }
        let mut failed = Vec::new();
        for page in by_topic.chunks(PAGE) {
            let resources = page.iter().map(|(topic, configs)| {
                AlterConfigsResource::default()
                    .with_resource_type(RESOURCE_TOPIC)
                    .with_resource_name(StrBytes::from_string((*topic).to_owned()))
                    .with_configs(configs.clone())
            });
            let request = IncrementalAlterConfigsRequest::default()
                .with_resources(resources.collect())
                .with_validate_only(validate_only);
            let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
            for (topic, _) in page {
                let response = response
                    .responses
                    .iter()
                    .find(|response| response.resource_name.as_str() == *topic);
                let (code, words) = match response {
                    Some(response) => (response.error_code, response.error_message.as_ref()),
                    None => (-1, None),
                };
                if let Some(error) = failure_name(code) {
                    let words = words.map(|words| format!(": {words}")).unwrap_or_default();
                    failed.push(NotAltered {
                        topic: (*topic).to_owned(),
                        why: format!("{error}{words}"),
                        is_forbidden: FORBIDDEN.contains(&code),
                    });
                }
            }
        }
        Ok(failed)
    }
}
