//! Names the places of objects: a prefix for each cluster and topic, and below it a name by one of three layouts.
//!
//! Invariant: a place is under its topic's prefix whatever the topic is called, and no two topics share one. Every part
//! of a key is made of `A–Z a–z 0–9 . _ - =`, none is `.`, `..` or empty: a folder's file names, a bucket's keys and an
//! URI take them as they are.

use std::fmt;
use std::time::SystemTime;

use uuid::Uuid;

use super::ticket::Digest;
use super::ticket::ObjectForm;
use crate::text::first_chars;
use crate::text::rfc3339;
use crate::vocabulary::labelled;

/// The most bytes of a name that is kept readable: what a Kafka topic's name has at most, and a file system takes.
const MOST_NAME_BYTES: usize = 249;

/// Where stores are tried: no encoded name is this.
const TRIAL: &str = "=trial";

/// Below a topic's prefix: where its objects lie that nothing names any more. No name by any layout is this.
const TRASH: &str = "trash";

labelled! {
    /// How objects below a topic's prefix are named.
    Layout {
        /// `dt=YYYY-MM-DD/SHA256`: the same value once a day, cleaned by age.
        Day = "day",
        /// `SHA256`: the same value once.
        Content = "content",
        /// A random UUID: every record has its own object.
        Event = "event",
    }
}

/// Where one object lies, below the store's own folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place(String);

impl Place {
    /// The key below the store's folder, with `/` between its parts.
    pub fn key(&self) -> &str {
        &self.0
    }

    /// Where its object lies once it has been put into the trash: below its topic's prefix too, so that whoever may read
    /// the one may read the other.
    #[must_use]
    pub fn in_trash(&self) -> Self {
        let prefix = prefix_of(&self.0);
        let name = self.0.strip_prefix(prefix).unwrap_or_default();
        Self(format!("{prefix}{TRASH}/{name}"))
    }
}

/// The [prefix](Namespace::prefix) of the topic that a key is of: the cluster's and the topic's part, with its slash.
pub fn prefix_of(key: &str) -> &str {
    let second = key.match_indices('/').nth(1);
    let end = second.map_or(0, |(at, _)| at.saturating_add(1));
    key.get(..end).unwrap_or_default()
}

/// What a key tells of an object of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnKey {
    /// Where it is, or was before it was put into the trash.
    pub place: Place,
    /// It lies in the trash.
    pub is_trash: bool,
}

/// An URI that is not of this store, cluster and topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ForeignUri;

impl fmt::Display for ForeignUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a place of this topic")
    }
}

impl std::error::Error for ForeignUri {}

/// The places of one cluster in one store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    /// The store's URI, without a slash at its end.
    base: String,
    cluster: String,
}

impl Namespace {
    /// `base` is the store's URI as it was configured, `cluster` the cluster's id.
    pub fn new(base: &str, cluster: &str) -> Self {
        Self {
            base: base.trim_end_matches('/').to_owned(),
            cluster: cluster.to_owned(),
        }
    }

    /// The cluster's id.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What all keys of a topic begin with; ends with a slash.
    pub fn prefix(&self, topic: &str) -> String {
        format!("{}/{}/", encoded(&self.cluster), encoded(topic))
    }

    /// What all keys of the cluster begin with; ends with a slash.
    pub fn root(&self) -> String {
        format!("{}/", encoded(&self.cluster))
    }

    /// The key that an URI of this store names, whatever is there.
    pub fn key_of<'a>(&self, uri: &'a str) -> Option<&'a str> {
        uri.strip_prefix(&self.base)?.strip_prefix('/')
    }

    /// Reads a key as this would have written it, for any topic. `None`: a trial, or nobody knows whose it is.
    pub fn own_key(&self, key: &str) -> Option<OwnKey> {
        let below = key.strip_prefix(&self.root())?;
        let (topic, name) = below.split_once('/')?;
        if topic == TRIAL {
            return None;
        }
        let kept = name
            .strip_prefix(TRASH)
            .and_then(|name| name.strip_prefix('/'));
        let name = kept.unwrap_or(name);
        is_name(name).then(|| OwnKey {
            place: Place(format!("{}{topic}/{name}", self.root())),
            is_trash: kept.is_some(),
        })
    }

    /// Whether a key is that of a [`Namespace::trial`].
    pub fn is_trial(key: &str) -> bool {
        key.split('/').nth(1) == Some(TRIAL)
    }

    /// The place for a value written at `now`. The two forms of one value are two objects.
    pub fn place(
        &self,
        topic: &str,
        layout: Layout,
        form: ObjectForm,
        digest: &Digest,
        now: SystemTime,
    ) -> Place {
        let prefix = self.prefix(topic);
        let suffix = form.suffix();
        Place(match layout {
            Layout::Day => format!("{prefix}dt={}/{digest}{suffix}", day(now)),
            Layout::Content => format!("{prefix}{digest}{suffix}"),
            Layout::Event => format!("{prefix}{}{suffix}", Uuid::new_v4()),
        })
    }

    /// A place for trying the store, which no topic has.
    pub fn trial(&self) -> Place {
        let cluster = encoded(&self.cluster);
        Place(format!("{cluster}/{TRIAL}/{}", Uuid::new_v4()))
    }

    /// What a ticket says of a place.
    pub fn uri(&self, place: &Place) -> String {
        format!("{}/{}", self.base, place.0)
    }

    /// The place of a ticket on a topic, under any layout: the layout may have changed since.
    ///
    /// # Errors
    /// It lies elsewhere, or is none that this would have written for that value.
    pub fn find(
        &self,
        topic: &str,
        uri: &str,
        form: ObjectForm,
        digest: &Digest,
    ) -> Result<Place, ForeignUri> {
        let key = uri
            .strip_prefix(&self.base)
            .and_then(|rest| rest.strip_prefix('/'))
            .ok_or(ForeignUri)?;
        let name = key
            .strip_prefix(&self.prefix(topic))
            .and_then(|name| name.strip_suffix(form.suffix()))
            .ok_or(ForeignUri)?;
        let is_ours = match name.split_once('/') {
            Some((folder, name)) => is_day(folder) && name == digest.hex(),
            None => name == digest.hex() || is_uuid(name),
        };
        if is_ours {
            Ok(Place(key.to_owned()))
        } else {
            Err(ForeignUri)
        }
    }
}

fn is_uuid(name: &str) -> bool {
    Uuid::parse_str(name).is_ok_and(|uuid| uuid.hyphenated().to_string() == name)
}

/// A name by one of the layouts, in one of the forms.
fn is_name(name: &str) -> bool {
    let is_digest = |name: &str| {
        name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    let bare = ObjectForm::ALL
        .into_iter()
        .filter_map(|form| name.strip_suffix(form.suffix()))
        .next_back()
        .unwrap_or(name);
    match bare.split_once('/') {
        Some((folder, name)) => is_day(folder) && is_digest(name),
        None => is_digest(bare) || is_uuid(bare),
    }
}

/// `YYYY-MM-DD`, UTC.
fn day(now: SystemTime) -> String {
    first_chars(&rfc3339(now), "YYYY-MM-DD".len()).to_owned()
}

fn is_day(folder: &str) -> bool {
    folder.strip_prefix("dt=").is_some_and(|day| {
        day.len() == 10
            && day.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    })
}

/// A name as one part of a key. What Kafka allows in a topic's name stays as it is, but for a dot in front; every other
/// byte becomes `=XX`. A name that is too long for a file system becomes its digest.
fn encoded(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'.' if at > 0 => out.push('.'),
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => out.push(char::from(byte)),
            _ => out.push_str(&format!("={byte:02X}")),
        }
    }
    if out.len() > MOST_NAME_BYTES {
        return format!("=h{}", Digest::of(name.as_bytes()));
    }
    if out.is_empty() {
        out.push('=');
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::{Duration, UNIX_EPOCH};

    use proptest::prelude::*;

    use super::*;

    /// 29 October 2026, 12:00 UTC.
    fn noon() -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_793_275_200)
    }

    fn namespace() -> Namespace {
        Namespace::new("s3://bucket/claims/", "4L6g3nShT-eMCtK--X86sw")
    }

    #[test]
    fn a_place_has_the_cluster_the_topic_and_a_name_by_the_layout() {
        let namespace = namespace();
        let digest = Digest::of(b"hello");
        let sha = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let uri = |layout, now| {
            let place = namespace.place(
                "library.loan.created",
                layout,
                ObjectForm::Plain,
                &digest,
                now,
            );
            namespace.uri(&place)
        };
        let prefix = "s3://bucket/claims/4L6g3nShT-eMCtK--X86sw/library.loan.created/";
        assert_eq!(uri(Layout::Content, noon()), format!("{prefix}{sha}"));
        assert_eq!(
            uri(Layout::Day, noon()),
            format!("{prefix}dt=2026-10-29/{sha}")
        );
        let midnight = noon() + Duration::from_secs(12 * 3_600);
        assert_eq!(
            uri(Layout::Day, midnight - Duration::from_millis(1)),
            format!("{prefix}dt=2026-10-29/{sha}")
        );
        assert_eq!(
            uri(Layout::Day, midnight),
            format!("{prefix}dt=2026-10-30/{sha}")
        );
        let event = uri(Layout::Event, noon());
        assert_eq!(event.len(), prefix.len() + 36);
        assert_ne!(event, uri(Layout::Event, noon()));
    }

    #[test]
    fn what_was_placed_is_found_under_its_own_topic_only() {
        let namespace = namespace();
        let digest = Digest::of(b"hello");
        let forms = |layout| ObjectForm::ALL.map(|form| (layout, form));
        for (layout, form) in Layout::ALL.iter().flat_map(forms) {
            let place = namespace.place("a", *layout, form, &digest, noon());
            let uri = namespace.uri(&place);
            assert_eq!(namespace.find("a", &uri, form, &digest), Ok(place));
            for topic in ["b", "", ".", "a/b", "A"] {
                assert_eq!(namespace.find(topic, &uri, form, &digest), Err(ForeignUri));
            }
            let other = Namespace::new("s3://bucket/claims", "another");
            assert_eq!(other.find("a", &uri, form, &digest), Err(ForeignUri));
            let other = Namespace::new("s3://bucket/claim", "4L6g3nShT-eMCtK--X86sw");
            assert_eq!(other.find("a", &uri, form, &digest), Err(ForeignUri));
        }
    }

    #[test]
    fn a_key_is_read_as_it_was_written_and_no_other_is_ours() {
        let namespace = namespace();
        let digest = Digest::of(b"hello");
        let forms = |layout| ObjectForm::ALL.map(|form| (layout, form));
        for (layout, form) in Layout::ALL.iter().flat_map(forms) {
            let place = namespace.place("a.b", *layout, form, &digest, noon());
            let trash = place.in_trash();
            let prefix = namespace.prefix("a.b");
            assert!(trash.key().starts_with(&format!("{prefix}trash/")));
            for (at, is_trash) in [(&place, false), (&trash, true)] {
                let place = place.clone();
                let own = namespace.own_key(at.key());
                assert_eq!(own, Some(OwnKey { place, is_trash }), "{at:?}");
            }
            // Nothing in the trash is a ticket's.
            let uri = namespace.uri(&trash);
            assert_eq!(namespace.find("a.b", &uri, form, &digest), Err(ForeignUri));
        }
        let root = namespace.root();
        for key in [
            namespace.trial().key().to_owned(),
            namespace.trial().in_trash().key().to_owned(),
            format!("another/a/{digest}"),
            format!("{root}a"),
            format!("{root}a/readme.txt"),
            format!("{root}a/trash/readme.txt"),
            format!("{root}a/trash/trash/{digest}"),
            format!("{root}a/dt=2026-10-29/readme.txt"),
            format!("{root}a/other/{digest}"),
            format!("{root}a/{digest}.gz"),
        ] {
            assert_eq!(namespace.own_key(&key), None, "{key}");
        }
    }

    #[test]
    fn no_uri_leads_out_of_the_prefix() {
        let namespace = namespace();
        let digest = Digest::of(b"hello");
        let prefix = "s3://bucket/claims/4L6g3nShT-eMCtK--X86sw/a/";
        for uri in [
            format!("{prefix}../b/{digest}"),
            format!("{prefix}dt=2026-10-29/../../b/{digest}"),
            format!("{prefix}dt=2026-10-2x/{digest}"),
            format!("{prefix}dt=../{digest}"),
            format!("{prefix}{digest}/"),
            format!("{prefix}/{digest}"),
            format!("{prefix}{digest}?versionId=1"),
            format!("{prefix}{}", Digest::of(b"other")),
            prefix.to_owned(),
            format!("http://elsewhere/{digest}"),
            format!("{prefix}%2e%2e/{digest}"),
        ] {
            for form in ObjectForm::ALL {
                let found = namespace.find("a", &uri, form, &digest);
                assert_eq!(found, Err(ForeignUri), "{uri}");
            }
        }
    }

    #[test]
    fn names_that_mean_something_to_a_file_system_do_not_reach_it() {
        for (name, expected) in [
            ("orders", "orders"),
            ("a.b_c-D", "a.b_c-D"),
            (".", "=2E"),
            ("..", "=2E."),
            (".hidden", "=2Ehidden"),
            ("", "="),
            ("=", "=3D"),
            ("=2E", "=3D2E"),
            ("a/b", "a=2Fb"),
            ("a\\b\0", "a=5Cb=00"),
            ("ä", "=C3=A4"),
            ("a#1", "a=231"),
        ] {
            assert_eq!(encoded(name), expected);
        }
        let longest = "a".repeat(249);
        assert_eq!(encoded(&longest), longest);
        assert_eq!(encoded(&"a".repeat(250)).len(), 66);
        assert_eq!(encoded(&"/".repeat(100)).len(), 66);
    }

    proptest! {
        #[test]
        fn no_two_names_share_a_prefix(names in prop::collection::vec("\\PC{0,12}|[./=]{0,4}", 2..20)) {
            let mut seen: HashMap<String, String> = HashMap::new();
            for name in names {
                let key = encoded(&name);
                prop_assert!(!key.is_empty() && key != "." && key != ".." && key.len() <= 249);
                prop_assert!(key.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-=".contains(&b)));
                if let Some(other) = seen.insert(key, name.clone()) {
                    prop_assert_eq!(other, name);
                }
            }
        }
    }
}
