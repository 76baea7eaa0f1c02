//! How single values are written: sizes, times, addresses, words, topics. Each type says what it allows,
//! reads it from text, and (where it has a form of its own) writes it back.
//!
//! Invariant: what `read` accepts needs no further check, but against other keys.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::{BatchLimit, Decode, HostPort, LogFormat, LogLevel, Mode, SaslMechanism};
use crate::policy::{Action, ErrorCode};

/// A value written as one piece of text.
pub(super) trait Scalar: Sized {
    /// What is allowed, to stand after “is not”.
    fn allowed() -> String;

    /// The value, or why it is none (empty where [`Scalar::allowed`] says it all).
    fn read(text: &str) -> Result<Self, String>;
}

/// Anything [`FromStr`] whose errors say nothing a user needs.
macro_rules! by_from_str {
    ($($type:ty: $allowed:literal),+ $(,)?) => {
        $(impl Scalar for $type {
            fn allowed() -> String {
                $allowed.to_owned()
            }

            fn read(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| String::new())
            }
        })+
    };
}

by_from_str! {
    SocketAddr: "an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or `[::]:19092`",
    bool: "`true` or `false`",
    u16: "a port, 0 to 65535",
}

/// One of a few words.
macro_rules! by_label {
    ($($type:ty),+ $(,)?) => {
        $(impl Scalar for $type {
            fn allowed() -> String {
                one_of(Self::ALL.iter().map(|word| word.label()))
            }

            fn read(text: &str) -> Result<Self, String> {
                Self::from_label(text).ok_or_else(String::new)
            }
        })+
    };
}

by_label!(Decode, ErrorCode, LogFormat, LogLevel, Mode, SaslMechanism);

/// What a rule does: [`Action::Offload`] is a word of the product, not of this version.
impl Scalar for Action {
    fn allowed() -> String {
        one_of(["reject", "observe"])
    }

    fn read(text: &str) -> Result<Self, String> {
        match Self::from_label(text) {
            Some(Self::Offload) => Err("the claim check is not in this version".to_owned()),
            Some(action) => Ok(action),
            None => Err(String::new()),
        }
    }
}

/// How a family's misfit is met.
#[derive(Debug, Clone, Copy)]
pub(super) struct Alignment {
    pub(super) enforce: bool,
}

impl Scalar for Alignment {
    fn allowed() -> String {
        one_of(["enforce", "warn"])
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "enforce" => Ok(Self { enforce: true }),
            "warn" => Ok(Self { enforce: false }),
            _ => Err(String::new()),
        }
    }
}

/// `a`, `b` or `c`, in backquotes.
pub(super) fn one_of<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let mut words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    let last = words.pop().unwrap_or_default();
    if words.is_empty() {
        last
    } else {
        format!("{} or {last}", words.join(", "))
    }
}

/// A size of `LEAST` to `MOST` bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size<const LEAST: u64, const MOST: u64 = { u64::MAX }>(pub(super) u64);

const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("KB", 1_000),
    ("B", 1),
];

impl<const LEAST: u64, const MOST: u64> Scalar for Size<LEAST, MOST> {
    fn allowed() -> String {
        let range = match (LEAST, MOST) {
            (0, u64::MAX) => String::new(),
            (_, u64::MAX) => format!(" of at least {} bytes", with_commas(LEAST)),
            _ => format!(" of {} to {} bytes", with_commas(LEAST), with_commas(MOST)),
        };
        format!("a size{range} (`65536`, `64KiB`, `1MiB`, `1MB`)")
    }

    fn read(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text)?;
        let unit = match unit {
            "" => 1,
            unit => SIZE_UNITS
                .iter()
                .find(|(name, _)| name.eq_ignore_ascii_case(unit))
                .map(|(_, bytes)| *bytes)
                .ok_or_else(String::new)?,
        };
        let bytes = number.checked_mul(unit).ok_or("too large")?;
        if (LEAST..=MOST).contains(&bytes) {
            Ok(Self(bytes))
        } else {
            Err(String::new())
        }
    }
}

/// A size as the config file writes it, exactly: `64KiB`, `1MB`, else plain bytes.
pub(crate) fn size_text(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, unit)| bytes >= *unit && bytes.is_multiple_of(*unit) && *unit > 1)
        .map_or_else(
            || bytes.to_string(),
            |(name, unit)| format!("{}{name}", bytes / unit),
        )
}

/// A number with a comma between thousands.
pub(crate) fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time of `LEAST_MS` milliseconds to a year.
#[derive(Debug, Clone, Copy)]
pub(super) struct Interval<const LEAST_MS: u64>(pub(super) Duration);

const TIME_UNITS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("ms", 1),
];
const YEAR_MS: u64 = 365 * 86_400_000;

impl<const LEAST_MS: u64> Scalar for Interval<LEAST_MS> {
    fn allowed() -> String {
        format!("a time of {LEAST_MS}ms to 365d, with its unit (`500ms`, `30s`, `10m`, `1h`)")
    }

    fn read(text: &str) -> Result<Self, String> {
        let (number, unit) = number_and_unit(text)?;
        let unit = TIME_UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(String::new)?
            .1;
        let ms = number.checked_mul(unit).ok_or_else(String::new)?;
        if (LEAST_MS..=YEAR_MS).contains(&ms) {
            Ok(Self(Duration::from_millis(ms)))
        } else {
            Err(String::new())
        }
    }
}

/// A time as the config file writes it.
pub(crate) fn time_text(time: Duration) -> String {
    let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    TIME_UNITS
        .iter()
        .find(|(_, unit)| ms >= *unit && ms.is_multiple_of(*unit))
        .map_or_else(
            || format!("{ms}ms"),
            |(name, unit)| format!("{}{name}", ms / unit),
        )
}

/// Reads a time for the command line, such as `--drain-timeout 25s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    Interval::<0>::read(text)
        .map(|interval| interval.0)
        .map_err(|_| format!("not {}", Interval::<0>::allowed()))
}

fn number_and_unit(text: &str) -> Result<(u64, &str), String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - unit.len()];
    if number.is_empty() {
        return Err(String::new());
    }
    Ok((number.parse().map_err(|_| "too large")?, unit.trim_start()))
}

/// The `batch_bytes` limit. A batch is a 61-byte header and at least one record of at least 7.
impl Scalar for BatchLimit {
    fn allowed() -> String {
        format!("`inherit`, `none` or {}", Size::<68>::allowed())
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "inherit" => Ok(Self::Inherit),
            "none" => Ok(Self::None),
            size => Size::<68>::read(size).map(|size| Self::Bytes(size.0)),
        }
    }
}

/// A whole number of `LEAST` to `MOST`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Count<const LEAST: u64, const MOST: u64>(pub(super) u64);

impl<const LEAST: u64, const MOST: u64> Scalar for Count<LEAST, MOST> {
    fn allowed() -> String {
        format!(
            "a whole number from {} to {}",
            with_commas(LEAST),
            with_commas(MOST)
        )
    }

    fn read(text: &str) -> Result<Self, String> {
        let number = text.parse().map_err(|_| String::new())?;
        if (LEAST..=MOST).contains(&number) {
            Ok(Self(number))
        } else {
            Err(String::new())
        }
    }
}

/// The limit of the `ratio` gate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio(pub(super) f64);

impl Scalar for Ratio {
    fn allowed() -> String {
        "a number above 1, such as `100`: how many times its wire bytes a batch may hold".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(ratio) if ratio > 1.0 && ratio.is_finite() => Ok(Self(ratio)),
            _ => Err(String::new()),
        }
    }
}

/// A share of a limit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share(pub(super) f64);

impl Scalar for Share {
    fn allowed() -> String {
        "a share above 0 and at most 1, such as `0.8`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => Ok(Self(share)),
            _ => Err(String::new()),
        }
    }
}

impl Scalar for HostPort {
    fn allowed() -> String {
        "a host and a port, such as `kafka-1:9092` or `[::1]:9092`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) => address,
            None if host.contains("://") => return Err("leave out the scheme".to_owned()),
            None if host.contains(':') => {
                return Err("an IPv6 address stands in brackets".to_owned());
            }
            None => host,
        };
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("a port is 1 to 65535")?;
        Ok(Self {
            host: HostName::read(host)?.0,
            port,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A DNS name or an IP address, without a port.
#[derive(Debug, Clone)]
pub(super) struct HostName(pub(super) String);

impl Scalar for HostName {
    fn allowed() -> String {
        "a host name or an IP address, without a port".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        const LONGEST_DNS_NAME: usize = 253;
        let name = !text.is_empty()
            && text.len() <= LONGEST_DNS_NAME
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        let address = text.parse::<std::net::IpAddr>().is_ok();
        if name || address {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

/// A broker's name for clients under SNI: a host name in which `{node_id}` stands once.
#[derive(Debug, Clone)]
pub(super) struct NodeName(pub(super) String);

impl Scalar for NodeName {
    fn allowed() -> String {
        "a host name in which {node_id} stands once, such as `b{node_id}.kafka.example.com`"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.matches("{node_id}").count() != 1 {
            return Err(String::new());
        }
        HostName::read(&text.replace("{node_id}", "2147483647"))?;
        Ok(Self(text.to_owned()))
    }
}

/// The ids of brokers that get a port: `0-9`, `0-9,1001-1003`.
#[derive(Debug, Clone)]
pub(super) struct NodeIds(pub(super) std::ops::RangeInclusive<i32>);

impl Scalar for NodeIds {
    fn allowed() -> String {
        "a broker id or a range of them, such as `0-9` or `0-9,1001-1003`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let id = |text: &str| match text.trim().parse::<i32>() {
            Ok(id) if id >= 0 => Ok(id),
            _ => Err(String::new()),
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (id(first)?, id(last)?),
            None => (id(text)?, id(text)?),
        };
        if first > last {
            Err("it ends before it begins".to_owned())
        } else {
            Ok(Self(first..=last))
        }
    }
}

/// Text of one line that is not empty, at most `MOST` bytes.
#[derive(Debug, Clone)]
pub(super) struct Line<const MOST: usize>(pub(super) String);

impl<const MOST: usize> Scalar for Line<MOST> {
    fn allowed() -> String {
        format!("one line of text of 1 to {MOST} bytes")
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.trim().is_empty() || text.len() > MOST || text.chars().any(char::is_control) {
            return Err(String::new());
        }
        Ok(Self(text.to_owned()))
    }
}

/// The name of a rule: it stands in metrics' labels and in the `rule=` of a refusal, so it is one word.
#[derive(Debug, Clone)]
pub(super) struct RuleName(pub(super) String);

impl Scalar for RuleName {
    fn allowed() -> String {
        "a name of 1 to 100 letters, digits, `.`, `_` and `-`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let word = text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'));
        if word && (1..=100).contains(&text.len()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

impl Scalar for PathBuf {
    fn allowed() -> String {
        "the path of a file".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err(String::new())
        } else {
            Ok(Self::from(text))
        }
    }
}

/// A password. Any text but none; it has no `Debug` and no way back to text.
pub(super) struct Secret(pub(super) String);

impl Scalar for Secret {
    fn allowed() -> String {
        "a password".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            Err("it is empty".to_owned())
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly_and_written_back_the_same() {
        for (text, expected) in [
            ("0", Some(0)),
            ("65536", Some(65_536)),
            ("64KiB", Some(65_536)),
            ("64 KiB", Some(65_536)),
            ("64kib", Some(65_536)),
            ("1MiB", Some(1_048_576)),
            ("1MB", Some(1_000_000)),
            ("1kB", Some(1_000)),
            ("3GiB", Some(3 << 30)),
            ("12B", Some(12)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("17179869184GiB", None),
            ("64K", None),
            ("1.5MiB", None),
            ("-1", None),
            ("", None),
            ("KiB", None),
            ("1 MiB of it", None),
            ("６４KiB", None),
        ] {
            assert_eq!(
                Size::<0>::read(text).map(|size| size.0).ok(),
                expected,
                "{text}"
            );
        }
        for bytes in [
            0,
            1,
            999,
            1_000,
            1_024,
            65_536,
            1_048_588,
            1_000_000,
            1_048_576,
            5 << 30,
            u64::MAX,
        ] {
            let text = size_text(bytes);
            assert_eq!(
                Size::<0>::read(&text).map(|size| size.0),
                Ok(bytes),
                "{text}"
            );
        }
    }

    #[test]
    fn times_need_their_unit_and_are_written_back_the_same() {
        for (text, expected) in [
            ("500ms", Some(500)),
            ("30s", Some(30_000)),
            ("10m", Some(600_000)),
            ("2h", Some(7_200_000)),
            ("365d", Some(YEAR_MS)),
            ("366d", None),
            ("30", None),
            ("30 seconds", None),
            ("1.5s", None),
            ("-1s", None),
            ("99", None),
            ("99ms", None),
            ("100ms", Some(100)),
        ] {
            let read = Interval::<100>::read(text).map(|interval| interval.0);
            assert_eq!(
                read.clone().ok(),
                expected.map(Duration::from_millis),
                "{text}"
            );
            if let Ok(time) = read {
                assert_eq!(
                    Interval::<100>::read(&time_text(time)).map(|interval| interval.0),
                    Ok(time)
                );
            }
        }
    }

    #[test]
    fn hosts_and_ports_are_read_as_kafka_writes_them() {
        for (text, expected) in [
            ("localhost:9092", Ok(("localhost", 9092))),
            ("10.0.0.1:9092", Ok(("10.0.0.1", 9092))),
            ("[::1]:9092", Ok(("::1", 9092))),
            ("localhost", Err("the port is missing")),
            ("localhost:", Err("a port is 1 to 65535")),
            ("localhost:0", Err("a port is 1 to 65535")),
            ("localhost:65536", Err("a port is 1 to 65535")),
            ("::1:9092", Err("an IPv6 address stands in brackets")),
            ("SASL_SSL://kafka:9092", Err("leave out the scheme")),
            (":9092", Err("")),
            ("a b:9092", Err("")),
        ] {
            let read = text.parse::<HostPort>();
            assert_eq!(
                read.as_ref()
                    .map(|at| (at.host.as_str(), at.port))
                    .map_err(String::as_str),
                expected,
                "{text}"
            );
            if let Ok(at) = read {
                assert_eq!(at.to_string(), text);
            }
        }
    }

    #[test]
    fn numbers_are_written_with_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_048_588, "1,048,588"),
        ] {
            assert_eq!(with_commas(number), text);
        }
    }
}
