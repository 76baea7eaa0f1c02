//! Sizes, times and other numbers.

use std::time::Duration;

use super::Scalar;
use crate::config::{BatchLimit, InsideLimit};
use crate::text::grouped;

/// A size of `LEAST` to `MOST` bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Size<const LEAST: u64, const MOST: u64 = { u64::MAX }>(
    pub(in crate::config) u64,
);

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
            (1, u64::MAX) => " of at least 1 byte".to_owned(),
            (_, u64::MAX) => format!(" of at least {} bytes", grouped(LEAST)),
            _ => format!(" of {} to {} bytes", grouped(LEAST), grouped(MOST)),
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
            |(name, unit)| format!("{}{name}", bytes.checked_div(*unit).unwrap_or(bytes)),
        )
}

/// A time of `LEAST_MS` milliseconds to a year.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Interval<const LEAST_MS: u64>(pub(in crate::config) Duration);

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
            |(name, unit)| format!("{}{name}", ms.checked_div(*unit).unwrap_or(ms)),
        )
}

/// Reads a time for the command line, such as `--drain-timeout 25s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    Interval::<0>::read(text)
        .map(|interval| interval.0)
        .map_err(|_| format!("not {}", Interval::<0>::allowed()))
}

/// A size of the command line, as in the configuration, in bytes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    Size::<1>::read(text)
        .map(|size| size.0)
        .map_err(|_| format!("not {}", Size::<1>::allowed()))
}

/// As [`size`], and 0 is one.
pub(crate) fn any_size(text: &str) -> Result<u64, String> {
    Size::<0>::read(text)
        .map(|size| size.0)
        .map_err(|_| format!("not {}", Size::<0>::allowed()))
}

fn number_and_unit(text: &str) -> Result<(u64, &str), String> {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = text.strip_suffix(unit).unwrap_or_default();
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

/// The limit of another gate.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) enum OrNone<S> {
    Some(S),
    None,
}

impl<S: Scalar> Scalar for OrNone<S> {
    fn allowed() -> String {
        format!("`none` or {}", S::allowed())
    }

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            number => S::read(number).map(Self::Some),
        }
    }
}

impl<S> OrNone<S> {
    pub(in crate::config) fn limit<T>(self, number: impl FnOnce(S) -> T) -> InsideLimit<T> {
        match self {
            Self::Some(scalar) => InsideLimit::At(number(scalar)),
            Self::None => InsideLimit::None,
        }
    }
}

/// A whole number of `LEAST` to `MOST`.
#[derive(Debug, Clone, Copy)]
pub(in crate::config) struct Count<const LEAST: u64, const MOST: u64>(pub(in crate::config) u64);

impl<const LEAST: u64, const MOST: u64> Scalar for Count<LEAST, MOST> {
    fn allowed() -> String {
        format!(
            "a whole number from {} to {}",
            grouped(LEAST),
            grouped(MOST)
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
pub(in crate::config) struct Ratio(pub(in crate::config) f64);

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
pub(in crate::config) struct Share(pub(in crate::config) f64);

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
    fn numbers_are_written_grouped() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_048_588, "1,048,588"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
