//! Moments as text: RFC 3339 in UTC with milliseconds, for logs and for the admin API.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serializer;

const SECONDS_PER_DAY: u64 = 86_400;

/// `2026-03-01T12:00:00.250Z`. A moment before 1970 is written as 1970's first.
pub fn rfc3339(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (year, month, day) = civil(since.as_secs() / SECONDS_PER_DAY);
    let second = since.as_secs() % SECONDS_PER_DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// Year, month and day of the n-th day since 1970-01-01, in the proleptic Gregorian calendar. Counts years from
/// March, so that the leap day is a year's last and months have a fixed pattern (153 days in five of them).
#[expect(
    clippy::arithmetic_side_effects,
    reason = "so many days as a u64 has seconds, times 153: far from its end"
)]
fn civil(days: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097; // 400 years
    let days = days + 719_468; // since 0000-03-01
    let (era, day_of_era) = (days / DAYS_PER_ERA, days % DAYS_PER_ERA);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// A moment as [`rfc3339`] in JSON.
pub(crate) fn as_rfc3339<S: Serializer>(at: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&rfc3339(*at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(millis: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_millis(millis))
    }

    #[test]
    fn moments_are_written_as_date_does() {
        // `date -u -d @N +%FT%T`
        assert_eq!(text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(text(951_868_799_999), "2000-02-29T23:59:59.999Z");
        assert_eq!(text(1_709_251_200_000), "2024-03-01T00:00:00.000Z");
        assert_eq!(text(1_767_225_599_001), "2025-12-31T23:59:59.001Z");
        assert_eq!(text(4_107_542_400_000), "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn days_follow_one_another_for_a_thousand_years() {
        let mut expected = (1970, 1, 1);
        for day in 0..365_243 {
            assert_eq!(civil(day), expected);
            let (year, month, day_of_month) = expected;
            let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match month {
                2 if leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            expected = match (month, day_of_month) {
                (12, 31) => (year + 1, 1, 1),
                (month, day) if day == length => (year, month + 1, 1),
                (month, day) => (year, month, day + 1),
            };
        }
    }

    #[test]
    fn a_moment_before_1970_does_not_panic() {
        assert_eq!(
            rfc3339(UNIX_EPOCH - Duration::from_secs(5)),
            "1970-01-01T00:00:00.000Z"
        );
    }
}
