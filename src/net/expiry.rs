//! When a certificate ends (RFC 5280, `validity.notAfter`): nothing that is used here says so.
//!
//! Invariant: reads within the bytes it is given; what is not such a certificate has no end.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use crate::wire::Reader;

const SEQUENCE: u8 = 0x30;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// `[0] EXPLICIT Version`, which may be left out.
const VERSION: u8 = 0xa0;

/// When the first of a file's certificates (PEM) ends, in seconds since 1970: a chain is as good as that.
pub(crate) fn expires_at(file: &Path) -> Option<u64> {
    let certificates = CertificateDer::pem_file_iter(file).ok()?;
    let ends = certificates.filter_map(Result::ok);
    ends.filter_map(|der| not_after(&der)).min()
}

/// Seconds since 1970 of the moment after which this certificate (DER) is not valid.
fn not_after(der: &[u8]) -> Option<u64> {
    let certificate = &mut Reader::new(content(&mut Reader::new(der), SEQUENCE)?);
    let body = &mut Reader::new(content(certificate, SEQUENCE)?);
    let (tag, _) = element(body)?;
    if tag == VERSION {
        // serialNumber
        element(body)?;
    }
    // signature, issuer
    element(body)?;
    element(body)?;
    let validity = &mut Reader::new(content(body, SEQUENCE)?);
    element(validity)?;
    let (tag, text) = element(validity)?;
    moment(tag, text)
}

fn content<'a>(r: &mut Reader<'a>, wanted: u8) -> Option<&'a [u8]> {
    element(r)
        .filter(|(tag, _)| *tag == wanted)
        .map(|(_, content)| content)
}

/// Tag and content of the next element. Lengths of up to four bytes.
fn element<'a>(r: &mut Reader<'a>) -> Option<(u8, &'a [u8])> {
    let [tag, first] = r.array("tag").ok()?;
    let length = match first {
        0..=0x7f => usize::from(first),
        0x81..=0x84 => {
            let bytes = r.take(usize::from(first & 0x7f), "length").ok()?;
            let length = bytes
                .iter()
                .fold(0u32, |sum, byte| sum.wrapping_shl(8) | u32::from(*byte));
            usize::try_from(length).ok()?
        }
        _ => return None,
    };
    Some((tag, r.take(length, "content").ok()?))
}

/// `YYMMDDHHMMSSZ` (years from 1950 to 2049) or `YYYYMMDDHHMMSSZ`.
fn moment(tag: u8, text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let (year, rest) = match (tag, text.len()) {
        (UTC_TIME, 12) => {
            let year: u64 = text.get(..2)?.parse().ok()?;
            (
                year.saturating_add(if year < 50 { 2000 } else { 1900 }),
                text.get(2..)?,
            )
        }
        (GENERALIZED_TIME, 14) => (text.get(..4)?.parse().ok()?, text.get(4..)?),
        _ => return None,
    };
    let two = |at: usize| rest.get(at..at.saturating_add(2))?.parse::<u64>().ok();
    let (month, day) = (two(0)?, two(2)?);
    let days = days_before(year, month)?.saturating_add(day.checked_sub(1)?);
    let seconds = two(4)?
        .saturating_mul(3600)
        .saturating_add(two(6)?.saturating_mul(60))
        .saturating_add(two(8)?);
    Some(days.saturating_mul(86_400).saturating_add(seconds))
}

/// Days from 1970-01-01 to the first of a month, in the Gregorian calendar.
fn days_before(year: u64, month: u64) -> Option<u64> {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let in_year = BEFORE.get(usize::try_from(month.checked_sub(1)?).ok()?)?;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Leap days of all years before this one.
    let leaps = |year: u64| {
        (year / 4)
            .saturating_sub(year / 100)
            .saturating_add(year / 400)
    };
    let last = year.checked_sub(1)?;
    let leap_days = leaps(last).checked_sub(leaps(1969))?;
    let days = year
        .checked_sub(1970)?
        .saturating_mul(365)
        .saturating_add(leap_days);
    let leap_day = u64::from(is_leap && month > 2);
    Some(days.saturating_add(*in_year).saturating_add(leap_day))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_date() {
        // date -u -d "2049-12-31 23:59:59" +%s
        for (tag, text, seconds) in [
            (UTC_TIME, "700101000000Z", 0),
            (UTC_TIME, "000301000000Z", 951_868_800),
            (UTC_TIME, "240229120000Z", 1_709_208_000),
            (UTC_TIME, "491231235959Z", 2_524_607_999),
            (GENERALIZED_TIME, "20500101000000Z", 2_524_608_000),
            (GENERALIZED_TIME, "21000301000000Z", 4_107_542_400),
        ] {
            assert_eq!(moment(tag, text.as_bytes()), Some(seconds), "{text}");
        }
        for text in [
            "",
            "Z",
            "7001010000Z",
            "70010100000xZ",
            "701301000000Z",
            "690101000000Z",
        ] {
            assert_eq!(moment(UTC_TIME, text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_certificate_tells_its_end_and_no_cut_of_it_panics() {
        let mut params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2031, 5, 17);
        let key = rcgen::KeyPair::generate().unwrap();
        let der = params.self_signed(&key).unwrap().der().to_vec();
        // date -u -d 2031-05-17 +%s
        assert_eq!(not_after(&der), Some(1_936_742_400));
        for cut in 0..der.len() {
            let _ = not_after(&der[..cut]);
        }
    }
}
