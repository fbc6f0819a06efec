//! Reads the inbox.

use super::candidate::{self, Candidate};
use super::rejects::Rejects;
use super::report::{Kind, Report};
use super::rules::Rules;
use super::winners::Winners;
use crate::error::{Error, Result};
use crate::usv::fields::Fields;
use crate::usv::file::{Input, Refusal};
use crate::usv::framer::{Ends, Event, Framer};

/// What an inbox entry is.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// A file.
    Path(&'a str),
    /// Its content.
    Bytes(&'a [u8]),
}

/// A record from later than this, from now, is told about.
const FUTURE_NS: i128 = 24 * 3600 * 1_000_000_000;
const FUTURE_KEPT: usize = 100;

/// Where the bytes of an entry come from.
enum Bytes<'a> {
    File(Input),
    Memory(&'a [u8]),
}

/// Reads all records of all entries into `winners` or `rejects`.
pub fn read(
    inbox: &[(String, Body<'_>)],
    rules: &Rules,
    winners: &mut Winners<'_>,
    rejects: &mut Rejects<'_>,
    report: &mut Report,
) -> Result<()> {
    let mut framer = Framer::with_chunk(Ends::Any, rules.max_record_bytes, 64 * 1024);
    let mut fields = Fields::default();
    for (name, body) in inbox {
        let bytes = match body {
            Body::Bytes(bytes) => Bytes::Memory(bytes),
            Body::Path(path) => match Input::open(path) {
                Ok(input) => Bytes::File(input),
                Err(Refusal::NotAFile(what)) => {
                    let message = format!("{path} is {what}; only regular files are merged");
                    rejects.whole(name, Kind::NotAFile, message);
                    continue;
                }
                Err(Refusal::Missing) => {
                    rejects.whole(name, Kind::Missing, format!("{path} is gone"));
                    continue;
                }
                Err(Refusal::Failed(errno)) => return Err(Error::io("read", path, errno)),
            },
        };
        framer.restart();
        entry(
            name,
            bytes,
            &mut framer,
            &mut fields,
            rules,
            winners,
            rejects,
            report,
        )?;
    }
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn entry(
    name: &str,
    mut bytes: Bytes<'_>,
    framer: &mut Framer,
    fields: &mut Fields,
    rules: &Rules,
    winners: &mut Winners<'_>,
    rejects: &mut Rejects<'_>,
    report: &mut Report,
) -> Result<()> {
    let mut number = 0;
    loop {
        match framer.next() {
            Event::Record(range) => {
                number += 1;
                let is_text = framer.is_text(&range);
                let raw = framer.bytes(&range);
                if !is_text {
                    let message = "it is not UTF-8".to_owned();
                    rejects.reject(name, number, Kind::NotUtf8, message, raw)?;
                    continue;
                }
                match candidate::take(raw, rules, fields, winners.arena()) {
                    Ok(candidate) => {
                        note(name, number, &candidate, rules, report);
                        winners.push(candidate)?;
                    }
                    Err((kind, message)) => rejects.reject(name, number, kind, message, raw)?,
                }
            }
            Event::LongPart(range) => rejects.part(framer.bytes(&range))?,
            Event::LongEnd(range) => {
                number += 1;
                let message = format!("it is longer than {} bytes", rules.max_record_bytes);
                let last = framer.bytes(&range);
                rejects.reject(name, number, Kind::TooLong, message, last)?;
            }
            Event::More => match &mut bytes {
                // Nothing left: no need to ask the file for its end.
                Bytes::File(input) if input.left() == 0 => framer.fill(0),
                Bytes::File(input) => {
                    let count = input.read(framer.room())?;
                    framer.fill(count);
                }
                Bytes::Memory([]) => framer.fill(0),
                Bytes::Memory(rest) => *rest = framer.feed(rest),
            },
            Event::End => return Ok(()),
        }
    }
}

fn note(name: &str, number: u64, candidate: &Candidate, rules: &Rules, report: &mut Report) {
    report.normalised += u64::from(candidate.normalised);
    report.padded += u64::from(candidate.padded);
    let later = candidate.updated_ns > rules.now_ns.saturating_add(FUTURE_NS);
    if later && report.future.len() < FUTURE_KEPT {
        report.future.push((name.to_owned(), number));
    }
}
