//! Findings that are accepted, from the file (`ignore`) and from the command line (`--ignore`).

use super::TopicPattern;
use super::scalars::Scalar;
use crate::vocabulary::FindingRule;

/// A finding that is acknowledged.
#[derive(Debug, Clone, PartialEq)]
pub struct Ignore {
    /// Which.
    pub finding: FindingRule,
    /// About which topics; `None`: whatever it is about.
    pub topic: Option<TopicPattern>,
    /// Why it is accepted.
    pub reason: String,
}

/// What `check --ignore` says: a finding, and after a colon perhaps a topic.
///
/// # Errors
/// What is allowed.
pub(crate) fn ignore(text: &str) -> Result<Ignore, String> {
    let (finding, topic) = match text.split_once(':') {
        Some((finding, topic)) => (finding, Some(topic)),
        None => (text, None),
    };
    let known = FindingRule::from_label(finding);
    Ok(Ignore {
        finding: known.ok_or_else(|| format!("it is not {}", FindingRule::allowed()))?,
        topic: topic
            .map(|topic| {
                let why = |_| format!("`{topic}` is not {}", TopicPattern::allowed());
                TopicPattern::read(topic).map_err(why)
            })
            .transpose()?,
        reason: "--ignore".to_owned(),
    })
}
