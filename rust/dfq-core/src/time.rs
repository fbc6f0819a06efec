//! Time as it is handed in, and as it stands in files.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The moment of a call, read by the caller. Nothing in this crate reads a clock.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Milliseconds since 1970; for people. It may jump.
    pub wall_ms: i64,
    /// Milliseconds since boot; for leases. It never jumps.
    pub boot_ms: i64,
}

/// A moment in a file: ISO 8601 in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub i64);

impl Serialize for Stamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut buffer = [0u8; 32];
        serializer.serialize_str(format(self.0, &mut buffer))
    }
}

impl<'de> Deserialize<'de> for Stamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Stamp;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an ISO 8601 time or seconds since 1970")
            }
            fn visit_str<E: serde::de::Error>(self, v: &str) -> Result<Stamp, E> {
                parse(v)
                    .map(Stamp)
                    .ok_or_else(|| E::custom(format!("{v:?} is not a time")))
            }
            fn visit_i64<E: serde::de::Error>(self, v: i64) -> Result<Stamp, E> {
                Ok(Stamp(v.saturating_mul(1000)))
            }
            fn visit_u64<E: serde::de::Error>(self, v: u64) -> Result<Stamp, E> {
                self.visit_i64(i64::try_from(v).unwrap_or(i64::MAX))
            }
            fn visit_f64<E: serde::de::Error>(self, v: f64) -> Result<Stamp, E> {
                Ok(Stamp((v * 1000.0) as i64))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Days since 1970 of a civil date (proleptic Gregorian calendar).
pub(crate) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The civil date (year, month, day) of days since 1970.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (
        yoe + era * 400 + i64::from(month <= 2),
        month,
        doy - (153 * mp + 2) / 5 + 1,
    )
}

/// Writes `2026-11-18T09:03:00.123Z`; years outside 0 to 9999 are clamped.
pub fn format(ms: i64, buffer: &mut [u8; 32]) -> &str {
    const LEAST: i64 = -62_167_219_200_000;
    const GREATEST: i64 = 253_402_300_799_999;
    let ms = ms.clamp(LEAST, GREATEST);
    let (days, rest) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let (year, month, day) = civil_from_days(days);
    let fields = [
        (0, 4, year),
        (5, 2, month),
        (8, 2, day),
        (11, 2, rest / 3_600_000),
        (14, 2, rest / 60_000 % 60),
        (17, 2, rest / 1000 % 60),
        (20, 3, rest % 1000),
    ];
    buffer[..24].copy_from_slice(b"0000-00-00T00:00:00.000Z");
    for (start, width, mut value) in fields {
        for position in (start..start + width).rev() {
            buffer[position] = b'0' + (value % 10) as u8;
            value /= 10;
        }
    }
    std::str::from_utf8(&buffer[..24]).unwrap_or_default()
}

/// Reads an ISO 8601 time with any fraction and `Z`, an offset or none (then UTC).
pub fn parse(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let part = bytes.get(from..to)?;
        part.iter().all(u8::is_ascii_digit).then_some(())?;
        std::str::from_utf8(part).ok()?.parse().ok()
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if bytes.len() < 19 || separators.iter().any(|&(at, byte)| bytes[at] != byte) {
        return None;
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let (month, day) = (number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = &bytes[19..];
    let mut ms = 0;
    if let Some(b'.' | b',') = rest.first() {
        let digits = rest[1..].iter().take_while(|b| b.is_ascii_digit()).count();
        for position in 0..3 {
            ms = ms * 10
                + if position < digits {
                    i64::from(rest[1 + position] - b'0')
                } else {
                    0
                };
        }
        rest = &rest[1 + digits..];
    }
    let offset_minutes = match rest {
        [] | [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), zone @ ..] => {
            let digits: Vec<i64> = zone
                .iter()
                .filter(|b| **b != b':')
                .map(|b| i64::from(*b) - 48)
                .collect();
            let (h, m) = match digits[..] {
                [a, b] => (a * 10 + b, 0),
                [a, b, c, d] => (a * 10 + b, c * 10 + d),
                _ => return None,
            };
            (h * 60 + m) * if *sign == b'-' { -1 } else { 1 }
        }
        _ => return None,
    };
    let days = days_from_civil(number(0, 4)?, month, day);
    Some(((days * 24 + hour) * 60 + minute - offset_minutes) * 60_000 + second * 1000 + ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_survives_the_round_trip() {
        for ms in [
            0,
            1,
            951_782_400_000,
            1_795_000_000_123,
            4_102_444_799_999,
            -1,
        ] {
            assert_eq!(parse(format(ms, &mut [0; 32])), Some(ms));
        }
        assert_eq!(
            format(951_782_400_000, &mut [0; 32]),
            "2000-02-29T00:00:00.000Z"
        );
    }

    #[test]
    fn other_forms_of_iso_are_read() {
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse("1970-01-01 00:00:00.5"), Some(500));
        assert_eq!(parse("1970-01-01T00:00:00.123456-0130"), Some(5_400_123));
        for bad in [
            "",
            "yesterday",
            "1970-13-01T00:00:00Z",
            "1970-01-01T00:00:00X",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
