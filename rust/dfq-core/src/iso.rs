//! Times as people and programs write them, read to the nanosecond.
//!
//! ISO 8601 in its extended and basic forms: a calendar, week or ordinal date; a time of day down
//! to hours, minutes or seconds, the last of them with any fraction; `Z`, an offset or none, which
//! means UTC. A date alone is its first moment. What is more exact than a nanosecond is cut off.

use crate::time::days_from_civil;

const NS_PER_SECOND: i128 = 1_000_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// Nanoseconds since 1970; None if `text` is no such time.
pub fn parse_ns(text: &[u8]) -> Option<i128> {
    if let Some(seconds) = plain_seconds(text) {
        return Some(i128::from(seconds) * NS_PER_SECOND);
    }
    let mut rest = text;
    let days = date(&mut rest)?;
    if rest.is_empty() {
        return Some(i128::from(days * SECONDS_PER_DAY) * NS_PER_SECOND);
    }
    if !matches!(rest[0], b'T' | b't' | b' ') {
        return None;
    }
    rest = &rest[1..];
    let (seconds, ns) = time_of_day(&mut rest)?;
    let offset = offset_seconds(rest)?;
    let total = days * SECONDS_PER_DAY + seconds - offset;
    Some(i128::from(total) * NS_PER_SECOND + i128::from(ns))
}

/// Seconds since 1970 in the form that most programs write, `2026-11-18T09:03:00Z`. None says
/// nothing: whatever is rare is left to the rest of this file.
fn plain_seconds(text: &[u8]) -> Option<i64> {
    let text: &[u8; 20] = text.try_into().ok()?;
    let mut all_digits = true;
    let mut two = |at: usize| {
        let (ten, one) = (text[at].wrapping_sub(b'0'), text[at + 1].wrapping_sub(b'0'));
        all_digits &= ten <= 9 && one <= 9;
        i64::from(ten) * 10 + i64::from(one)
    };
    let (year, month, day) = (two(0) * 100 + two(2), two(5), two(8));
    let (hour, minute, second) = (two(11), two(14), two(17));
    let marks = [text[4], text[7], text[10], text[13], text[16], text[19]];
    let is_plain = all_digits
        && marks == *b"--T::Z"
        && (1..=12).contains(&month)
        && (1..=28).contains(&day)
        && hour <= 23
        && minute <= 59
        && second <= 59;
    is_plain.then(|| {
        days_from_civil(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    })
}

/// Takes exactly `count` digits.
fn digits(rest: &mut &[u8], count: usize) -> Option<i64> {
    let part = rest.get(..count)?;
    let mut value = 0;
    for byte in part {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        value = value * 10 + i64::from(digit);
    }
    *rest = &rest[count..];
    Some(value)
}

fn take(rest: &mut &[u8], byte: u8) -> bool {
    let found = rest.first() == Some(&byte);
    if found {
        *rest = &rest[1..];
    }
    found
}

fn leading_digits(rest: &[u8]) -> usize {
    rest.iter().take_while(|b| b.is_ascii_digit()).count()
}

fn date(rest: &mut &[u8]) -> Option<i64> {
    let year = digits(rest, 4)?;
    let extended = take(rest, b'-');
    if take(rest, b'W') {
        return week_date(rest, year, extended);
    }
    if leading_digits(rest) == 3 {
        return ordinal_date(rest, year);
    }
    let month = digits(rest, 2)?;
    if extended && !take(rest, b'-') {
        return None;
    }
    let day = digits(rest, 2)?;
    if !(1..=12).contains(&month) || !(1..=days_in(year, month)).contains(&day) {
        return None;
    }
    Some(days_from_civil(year, month, day))
}

fn ordinal_date(rest: &mut &[u8], year: i64) -> Option<i64> {
    let day = digits(rest, 3)?;
    let most = if is_leap(year) { 366 } else { 365 };
    (1..=most)
        .contains(&day)
        .then(|| days_from_civil(year, 1, 1) + day - 1)
}

fn week_date(rest: &mut &[u8], year: i64, extended: bool) -> Option<i64> {
    let week = digits(rest, 2)?;
    if extended && !take(rest, b'-') {
        return None;
    }
    let day = digits(rest, 1)?;
    let (first, next) = (first_monday(year), first_monday(year + 1));
    let weeks = (next - first) / 7;
    ((1..=weeks).contains(&week) && (1..=7).contains(&day))
        .then(|| first + (week - 1) * 7 + day - 1)
}

/// The Monday of week 1: the week that 4 January is in.
fn first_monday(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    // 1970-01-01 was a Thursday, three days after a Monday.
    fourth - (fourth + 3).rem_euclid(7)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Seconds since midnight and nanoseconds of the second.
fn time_of_day(rest: &mut &[u8]) -> Option<(i64, i64)> {
    let hour = digits(rest, 2)?;
    let extended = rest.first() == Some(&b':');
    let (mut minute, mut second, mut unit) = (0, 0, 3600);
    if more(rest, extended) {
        minute = digits(rest, 2)?;
        unit = 60;
        if more(rest, extended) {
            second = digits(rest, 2)?;
            unit = 1;
        }
    }
    // A leap second is the one after it; 24:00 is the next day's midnight.
    if hour > 24 || minute > 59 || second > 60 {
        return None;
    }
    let (extra, ns) = fraction(rest, unit)?;
    if hour == 24 && (minute, second, extra, ns) != (0, 0, 0, 0) {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second + extra, ns))
}

/// Whether another part of the time of day follows.
fn more(rest: &mut &[u8], extended: bool) -> bool {
    if extended {
        take(rest, b':')
    } else {
        rest.first().is_some_and(u8::is_ascii_digit)
    }
}

/// A fraction of a unit of so many seconds: whole seconds and nanoseconds.
fn fraction(rest: &mut &[u8], unit: i64) -> Option<(i64, i64)> {
    if !take(rest, b'.') && !take(rest, b',') {
        return Some((0, 0));
    }
    let count = leading_digits(rest);
    if count == 0 {
        return None;
    }
    let mut parts: i64 = 0;
    for position in 0..9 {
        let digit = if position < count {
            rest[position] - b'0'
        } else {
            0
        };
        parts = parts * 10 + i64::from(digit);
    }
    *rest = &rest[count..];
    let ns = parts * unit;
    Some((ns / 1_000_000_000, ns % 1_000_000_000))
}

fn offset_seconds(rest: &[u8]) -> Option<i64> {
    let sign = match rest {
        [] | [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let mut zone = &rest[1..];
    let hours = digits(&mut zone, 2)?;
    let minutes = if zone.is_empty() {
        0
    } else {
        take(&mut zone, b':');
        digits(&mut zone, 2)?
    };
    (zone.is_empty() && hours <= 23 && minutes <= 59)
        .then_some(sign * (hours * 3600 + minutes * 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOMENT: i128 = 1_794_992_580_000_000_000; // 2026-11-18T09:03:00Z

    #[test]
    fn every_form_of_one_moment_is_the_same_moment() {
        for text in [
            "2026-11-18T09:03:00Z",
            "2026-11-18T09:03:00",
            "2026-11-18 09:03:00.000000",
            "2026-11-18t09:03z",
            "2026-11-18T09,05",
            "2026-11-18T09:03:00,0Z",
            "20261118T090300Z",
            "20261118T0903",
            "2026-11-18T10:03:00+01:00",
            "2026-11-18T10:03:00+01",
            "2026-11-18T04:33:00-0430",
            "2026-W47-3T09:03:00Z",
            "2026W473T0903Z",
            "2026-322T09:03Z",
            "2026322T0903Z",
            "2026-11-17T33:03:00Z",
        ] {
            let expected = (!text.contains("T33")).then_some(MOMENT);
            assert_eq!(parse_ns(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn the_plain_form_means_what_the_others_mean() {
        let start = *b"2026-11-18T09:03:00Z";
        for at in 0..start.len() - 1 {
            for byte in b' '..=b'~' {
                let mut text = start;
                text[at] = byte;
                // With a fraction it is plain no more.
                let other = [&text[..19], b".0", &text[19..]].concat();
                if byte.is_ascii_digit() || plain_seconds(&text).is_some() {
                    assert_eq!(parse_ns(&text), parse_ns(&other), "{}", text.escape_ascii());
                }
            }
        }
    }

    #[test]
    fn nanoseconds_are_kept_and_less_is_cut_off() {
        let at = |text: &str| parse_ns(text.as_bytes()).unwrap() - MOMENT;
        assert_eq!(at("2026-11-18T09:03:00.000000001Z"), 1);
        assert_eq!(at("2026-11-18T09:03:00.0000000019Z"), 1);
        assert_eq!(at("2026-11-18T09:03:00.5Z"), 500_000_000);
        assert_eq!(at("2026-11-18T09:03.5Z"), 30_000_000_000);
    }

    #[test]
    fn the_ends_of_the_day_and_of_the_calendar_are_read() {
        let at = |text: &str| parse_ns(text.as_bytes());
        assert_eq!(at("1970-01-01"), Some(0));
        assert_eq!(at("1969-12-31T24:00:00"), Some(0));
        assert_eq!(at("1969-12-31T23:59:60"), Some(0));
        assert_eq!(at("0001-01-01"), Some(-62_135_596_800_000_000_000));
        assert_eq!(
            at("9999-12-31T23:59:59Z"),
            Some(253_402_300_799_000_000_000)
        );
        assert_eq!(at("2020-W53-7"), at("2021-01-03"));
        assert_eq!(at("2024-366"), at("2024-12-31"));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for text in [
            "",
            "yesterday",
            "2026",
            "2026-11",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-11-18T",
            "2026-11-18T09:",
            "2026-11-18T9:03",
            "2026-11-18T09:03:00X",
            "2026-11-18T09:03:00.Z",
            "2026-11-18T25:00",
            "2026-11-18T24:00:01",
            "2026-11-18T09:60",
            "2026-11-18T09:03:61",
            "2026-11-18T09:03:00+1",
            "2026-11-18T09:03:00+24:00",
            "2026-11-18T09:03:00+01:",
            "2026-11-18T09:03:00Z ",
            " 2026-11-18",
            "2026-11-18T0903:00",
            "2026-1118",
            "2026-367",
            "2025-366",
            "2026-W54-1",
            "2026-W47-8",
            "1794992580",
            "\u{660}",
        ] {
            assert_eq!(parse_ns(text.as_bytes()), None, "{text}");
        }
    }
}
