//! What a file may say: every key once, as serde types. [`super::valid`] makes a [`Config`](super::Config) of it.
//!
//! Invariant: a key exists if and only if it is a field here.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::de::value::{Error as Stop, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::claim::{StoreFailure, Unredeemed};
use super::mistakes::below;
use super::scalars::{
    Alignment, Count, FallbackTopic, HostName, Interval, KeyId, Line, NodeIds, NodeName, OrNone,
    Ratio, RuleName, Scalar, Secret, Share, Size, TopicName,
};
use super::topics::MemberPattern;
use super::{
    BatchLimit, Compression, Decode, Histograms, HostPort, LogFormat, LogLevel, Mode, NamePattern,
    RecordKey, SaslMechanism, TopicPattern,
};
use crate::claim::{Layout, StoreUri};
use crate::vocabulary::{Action, Codec, ErrorCode, FindingRule};

/// Declares a section: a struct whose every field may be left out.
macro_rules! section {
    ($($name:ident { $($(#[$meta:meta])* $field:ident: $type:ty),+ $(,)? })+) => {
        $(#[derive(Default, Deserialize)]
        #[serde(default)]
        pub(super) struct $name { $($(#[$meta])* pub(super) $field: $type),+ })+
    };
}

section! {
    RawConfig {
        cluster: Field<RawCluster>,
        listener: Field<RawListener>,
        mode: Key<Mode>,
        limits: Field<RawLimits>,
        rules: List<RawRule>,
        families: Field<RawFamilies>,
        ignore: List<RawIgnore>,
        claim_check: Field<RawClaimCheck>,
        near_limit: Key<Share>,
        memory: Field<RawMemory>,
        inspection: Field<RawInspection>,
        admin: Field<RawAdmin>,
        refusals: Field<RawRefusals>,
        telemetry: Field<RawTelemetry>,
    }
    RawCluster {
        bootstrap_servers: List<Text<HostPort>>,
        tls: Field<RawClientTls>,
        admin: Field<RawClusterAdmin>,
    }
    RawClientTls {
        ca_file: Key<PathBuf>,
        cert_file: Key<PathBuf>,
        key_file: Key<PathBuf>,
        server_name: Key<HostName>,
    }
    RawClusterAdmin {
        sasl: Field<RawSasl>,
        refresh_interval: Key<Interval<100>>,
    }
    RawSasl {
        mechanism: Key<SaslMechanism>,
        username: Key<Line<1024>>,
        password: Key<Secret>,
        password_file: Key<PathBuf>,
    }
    RawListener {
        bind: Key<SocketAddr>,
        advertised_host: Key<HostName>,
        node_ports: Field<RawNodePorts>,
        sni: Field<RawSni>,
        tls: Field<RawServerTls>,
        // 1 KiB: below it a client could not even say hello. 2 GiB - 1: the frame's length is a signed int32.
        frame_bytes: Key<Size<1024, 2_147_483_647>>,
        max_connections: Key<Count<1, 10_000_000>>,
        idle_timeout: Key<Interval<100>>,
    }
    RawNodePorts {
        first: Key<Count<1, 65_535>>,
        node_ids: List<Text<NodeIds>>,
    }
    RawSni {
        bootstrap: Key<HostName>,
        node: Key<NodeName>,
        advertised_port: Key<Count<1, 65_535>>,
    }
    RawServerTls {
        cert_file: Key<PathBuf>,
        key_file: Key<PathBuf>,
        client_ca_file: Key<PathBuf>,
    }
    RawLimits {
        batch_bytes: Key<BatchLimit>,
        uncompressed_bytes: Key<OrNone<Size<68>>>,
        record_bytes: Key<OrNone<Size<7>>>,
        estimate_bytes: Key<OrNone<Size<68>>>,
        key_bytes: Key<OrNone<Size<1>>>,
        value_bytes: Key<OrNone<Size<1>>>,
        headers_bytes: Key<OrNone<Size<1>>>,
        ratio: Key<OrNone<Ratio>>,
    }
    RawRule {
        name: Key<RuleName>,
        topics: List<Text<TopicPattern>>,
        clients: Field<RawClients>,
        limits: Field<RawLimits>,
        topic_config: Field<RawTopicConfig>,
        codecs: Field<RawCodecs>,
        action: Key<Action>,
        offload: Field<RawOffload>,
        error_code: Key<ErrorCode>,
        // A refusal is at most 1,024 bytes; half of it is ours.
        remedy: Key<Line<512>>,
    }
    RawTopicConfig {
        max_message_bytes: Field<RawBounds>,
        segment_bytes: Field<RawBounds>,
        compression_type: List<Text<Compression>>,
        brokers: Key<bool>,
    }
    RawBounds {
        // `max.message.bytes` and `segment.bytes` are signed int32 in Kafka.
        min: Key<Size<0, 2_147_483_647>>,
        max: Key<Size<0, 2_147_483_647>>,
    }
    RawCodecs {
        allow: List<Text<Codec>>,
        above: Key<Size<0>>,
        unless_incompressible: Key<bool>,
    }
    RawClients {
        client_ids: List<Text<NamePattern>>,
        principals: List<Text<NamePattern>>,
        software: List<Text<NamePattern>>,
    }
    RawFamilies {
        detect: Key<bool>,
        headroom: Key<Size<0>>,
        members: List<RawFamily>,
    }
    RawFamily {
        main: Key<TopicPattern>,
        retry: List<Text<MemberPattern>>,
        dead_letter: List<Text<MemberPattern>>,
        alignment: Key<Alignment>,
        // As `limits.estimate_bytes`: no record's estimate is smaller.
        writer_max_request_size: Key<OrNone<Size<68>>>,
    }
    RawIgnore {
        finding: Key<FindingRule>,
        topic: Key<TopicPattern>,
        reason: Key<Line<512>>,
    }
    RawOffload {
        // A ticket has some 400 bytes: below this there is nothing to gain.
        above: Key<Size<1024>>,
        on_store_failure: Key<StoreFailure>,
        redeem: Field<RawRedeem>,
    }
    RawRedeemSection {
        clients: Field<RawClients>,
    }
    RawClaimCheck {
        store: Key<StoreUri>,
        store_options: Field<RawOptions>,
        keys: List<RawClaimKey>,
        layout: Key<Layout>,
        retention: Key<Interval<1_000>>,
        grace: Key<Interval<0>>,
        fallback: Field<RawFallback>,
    }
    RawClaimKey {
        id: Key<KeyId>,
        secret: Key<Secret>,
        secret_file: Key<PathBuf>,
    }
    RawFallback {
        topic: Key<FallbackTopic>,
        on_missing: Key<Unredeemed>,
        on_corrupt: Key<Unredeemed>,
    }
    RawMemory {
        budget: Key<Size<1_048_576>>,
    }
    RawInspection {
        decode: Key<Decode>,
    }
    RawAdmin {
        bind: Key<SocketAddr>,
        peers: List<Text<HostPort>>,
    }
    RawRefusals {
        topic: Key<OrNone<TopicName>>,
        record_key: Key<RecordKey>,
    }
    RawTelemetry {
        topics: Key<Count<0, 1_000_000>>,
        histograms: Key<Histograms>,
        log: Key<LogFormat>,
        log_level: Key<LogLevel>,
    }
}

/// A key's value.
#[derive(Default)]
pub(super) enum Field<T> {
    /// Nobody wrote it.
    #[default]
    Absent,
    /// Written, and wrong: the report has it.
    Wrong,
    /// Written.
    Given(T),
}

/// A key with one piece of text.
pub(super) type Key<T> = Field<Text<T>>;
/// A key with a list; an entry that is wrong does not take the others with it.
pub(super) type List<T> = Field<Vec<Field<T>>>;

impl<T> Field<T> {
    /// The value, if it was written and right.
    pub(super) fn given(self) -> Option<T> {
        match self {
            Self::Given(value) => Some(value),
            Self::Absent | Self::Wrong => None,
        }
    }

    pub(super) fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<T: Default> Field<T> {
    /// The section, or one in which nothing is written.
    pub(super) fn section(self) -> T {
        self.given().unwrap_or_default()
    }
}

impl<T> Field<Text<T>> {
    /// The value, or `default` where none was written (or a wrong one: the config is refused anyway).
    pub(super) fn or(self, default: T) -> T {
        self.value().unwrap_or(default)
    }

    /// The value, if it was written and right.
    pub(super) fn value(self) -> Option<T> {
        self.given().map(|text| text.0)
    }
}

impl<T> Field<Vec<Field<T>>> {
    /// The entries that are right.
    pub(super) fn entries(self) -> Vec<T> {
        self.given()
            .into_iter()
            .flatten()
            .filter_map(Field::given)
            .collect()
    }
}

impl<T> Field<Vec<Field<Text<T>>>> {
    /// The entries that are right, where each is one piece of text.
    pub(super) fn texts(self) -> Vec<T> {
        self.entries().into_iter().map(|text| text.0).collect()
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(T::deserialize(deserializer).map_or(Self::Wrong, Self::Given))
    }
}

/// A [`Scalar`] as serde reads it.
pub(super) struct Text<T>(pub(super) T);

impl<'de, T: Scalar> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyLister<T>(PhantomData<T>);

        impl<T: Scalar> Visitor<'_> for KeyLister<T> {
            type Value = Text<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&T::allowed())
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Text<T>, E> {
                T::read(text).map(Text).map_err(|why| {
                    let allowed = T::allowed();
                    if why.is_empty() {
                        E::custom(format_args!("is not {allowed}"))
                    } else {
                        E::custom(format_args!("is not {allowed}: {why}"))
                    }
                })
            }
        }

        deserializer.deserialize_str(KeyLister(PhantomData))
    }
}

/// One word, or a section that says more.
pub(super) enum RawRedeem {
    Word(bool),
    Section(RawRedeemSection),
}

impl<'de> Deserialize<'de> for RawRedeem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyLister;

        impl<'de> Visitor<'de> for KeyLister {
            type Value = RawRedeem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`true`, `false` or a section with `clients`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<RawRedeem, E> {
                bool::read(text)
                    .map(RawRedeem::Word)
                    .map_err(|_| E::custom("is not `true`, `false` or a section with `clients`"))
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                section: D,
            ) -> Result<RawRedeem, D::Error> {
                RawRedeemSection::deserialize(section).map(RawRedeem::Section)
            }
        }

        deserializer.deserialize_newtype_struct(WORD_OR_SECTION, KeyLister)
    }
}

/// The name under which a format is asked for a text or a section, whichever is there.
pub(super) const WORD_OR_SECTION: &str = "word or section";

/// Keys that somebody else knows, each with a text.
#[derive(Default)]
pub(super) struct RawOptions(pub(super) Vec<(String, Key<Secret>)>);

impl<'de> Deserialize<'de> for RawOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyLister;

        impl<'de> Visitor<'de> for KeyLister {
            type Value = RawOptions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a section with the store's own keys")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawOptions, A::Error> {
                let mut options = Vec::new();
                while let Some(key) = map.next_key()? {
                    options.push((key, map.next_value()?));
                }
                Ok(RawOptions(options))
            }
        }

        deserializer.deserialize_map(KeyLister)
    }
}

/// Every key there is, dotted, entries of lists as `[]` (`rules[].name`), sections included; in the order of
/// this file.
pub fn known_keys() -> Vec<String> {
    key_table().into_iter().map(|key| key.path).collect()
}

/// A key, and what may stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownKey {
    /// As in [`known_keys`].
    pub path: String,
    /// What it takes.
    pub takes: Takes,
    /// It takes a list of that, or one.
    pub is_list: bool,
}

/// What may stand at a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Takes {
    /// Further keys of ours.
    Section,
    /// Keys of somebody else's, each with a text.
    Options,
    /// One piece of text; what is allowed, in words.
    Text(String),
    /// A section, or one of these words.
    SectionOr(String),
}

/// Every key with what it takes, in the order of [`known_keys`].
pub fn key_table() -> Vec<KnownKey> {
    let keys = RefCell::new(Vec::new());
    // It cannot fail: a `Field` takes every error for itself.
    let _: Result<RawConfig, Stop> = RawConfig::deserialize(Walk {
        path: String::new(),
        keys: &keys,
        at: None,
    });
    keys.into_inner()
}

/// A pretended document in which every key is written, and every list has one entry.
struct Walk<'a> {
    path: String,
    keys: &'a RefCell<Vec<KnownKey>>,
    /// Where the key that is looked at stands among them; `None`: the document itself.
    at: Option<usize>,
}

impl Walk<'_> {
    fn takes(&self, takes: Takes) {
        self.key(|key| key.takes = takes);
    }

    fn key(&self, act: impl FnOnce(&mut KnownKey)) {
        let mut keys = self.keys.borrow_mut();
        if let Some(key) = self.at.and_then(|at| keys.get_mut(at)) {
            act(key);
        }
    }
}

/// What a visitor says it expects.
struct Expected<V>(V);

impl<'de, V: Visitor<'de>> fmt::Display for Expected<&V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }
}

impl<'de> Deserializer<'de> for Walk<'_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stop> {
        Err(Stop::custom("a key without keys of its own"))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.takes(Takes::Text(Expected(&visitor).to_string()));
        self.deserialize_any(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.takes(Takes::Options);
        self.deserialize_any(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        self.key(|key| key.is_list = true);
        visitor.visit_seq(WalkList {
            entry: Some(Walk {
                path: self.path + "[]",
                keys: self.keys,
                at: self.at,
            }),
        })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        visitor.visit_map(WalkSection {
            fields: fields.iter(),
            field: "",
            walk: self,
        })
    }

    /// As if the section were written.
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        self.takes(Takes::SectionOr(Expected(&visitor).to_string()));
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char string bytes byte_buf
        option unit unit_struct tuple tuple_struct enum identifier ignored_any
    }
}

struct WalkList<'a> {
    entry: Option<Walk<'a>>,
}

impl<'de> SeqAccess<'de> for WalkList<'_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        self.entry
            .take()
            .map(|entry| seed.deserialize(entry))
            .transpose()
    }
}

struct WalkSection<'a> {
    fields: std::slice::Iter<'static, &'static str>,
    field: &'static str,
    walk: Walk<'a>,
}

impl<'de> MapAccess<'de> for WalkSection<'_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        let Some(field) = self.fields.next() else {
            return Ok(None);
        };
        self.field = field;
        seed.deserialize(StrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        let path = below(&self.walk.path, self.field);
        let at = {
            let mut keys = self.walk.keys.borrow_mut();
            keys.push(KnownKey {
                path: path.clone(),
                takes: Takes::Section,
                is_list: false,
            });
            keys.len().checked_sub(1)
        };
        seed.deserialize(Walk {
            path,
            keys: self.walk.keys,
            at,
        })
    }
}
