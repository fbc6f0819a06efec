//! Any inbox merges into what a plain map makes of it, at once or piece by piece, in memory or
//! spilled; any bytes in the place of a shard are merged or refused, never lost without a word.

#![no_main]

use std::collections::BTreeMap;
use std::path::PathBuf;

use dfq_core::error::Kind;
use dfq_core::iso;
use dfq_core::merge::find::{self, Place};
use dfq_core::merge::key::KeyRule;
use dfq_core::merge::{merge, Body, Report, Rules};
use dfq_core::usv::escape::unescape;
use libfuzzer_sys::fuzz_target;

const COLUMNS: usize = 3; // key, updated_at, deleted_at

fuzz_target!(|data: &[u8]| {
    let [how, memory, data @ ..] = data else {
        return;
    };
    let rule = [KeyRule::Exact, KeyRule::Lower, KeyRule::Domain][usize::from(how % 3)];
    let folder = Folder::new();
    let bodies: Vec<&[u8]> = data.split(|byte| *byte == 0).take(8).collect();

    let at_once = folder.merge(None, &bodies, &folder.rules(rule, 1 << 20), "at-once");
    let at_once = at_once.expect("an inbox is never an error");
    assert_eq!(folder.read("at-once"), modelled(&bodies, rule));
    assert_eq!(at_once.1.bytes as usize, folder.read("at-once").len());

    // The last first, one by one, with as much memory as the data say.
    let rules = folder.rules(rule, usize::from(*memory) * 4);
    let mut shard: Option<String> = None;
    for (number, body) in bodies.iter().rev().enumerate() {
        let name = format!("step-{number}");
        let merged = folder.merge(shard.as_deref(), &[*body], &rules, &name);
        shard = Some(merged.expect("a shard of our own is no error").0);
    }
    if let Some(last) = &shard {
        assert_eq!(std::fs::read(last).unwrap(), folder.read("at-once"));
        every_key_is_found(last, &folder.read("at-once"), rule);
    }
    let (_, again) = folder
        .merge(Some(&at_once.0), &bodies, &rules, "again")
        .expect("a shard of our own is no error");
    assert!(!again.changed && again.taken == 0);

    any_bytes_are_a_shard_or_are_refused(&folder, data, &rules);
});

fn any_bytes_are_a_shard_or_are_refused(folder: &Folder, data: &[u8], rules: &Rules) {
    let path = folder.path("strange");
    std::fs::write(&path, data).unwrap();
    match folder.merge(Some(&path), &[], rules, "from-strange") {
        Err(error) => assert_eq!(error.kind, Kind::Damaged, "{error}"),
        Ok((_, report)) => {
            let output = folder.read("from-strange");
            assert_eq!(report.changed, output != data);
            assert!(!report.changed || report.padded > 0);
        }
    }
}

fn every_key_is_found(path: &str, content: &[u8], key_rule: KeyRule) {
    let place = Place {
        path,
        columns: COLUMNS,
        key: 0,
        key_rule,
    };
    for record in content
        .split(|byte| *byte == b'\n')
        .filter(|r| !r.is_empty())
        .take(20)
    {
        let field = record.split(|byte| *byte == 0x1f).next().unwrap();
        let key = String::from_utf8(unescape(field).into_owned()).unwrap();
        assert_eq!(find::find(&place, &key).unwrap().as_deref(), Some(record));
    }
}

/// What a plain map makes of it.
fn modelled(bodies: &[&[u8]], rule: KeyRule) -> Vec<u8> {
    type Rank = (i128, bool, Vec<Vec<u8>>);
    let mut records: BTreeMap<Vec<u8>, Rank> = BTreeMap::new();
    for raw in bodies
        .iter()
        .flat_map(|body| body.split(|byte| matches!(*byte, b'\n' | 0x1e)))
    {
        if raw.is_empty() || std::str::from_utf8(raw).is_err() {
            continue;
        }
        let mut fields: Vec<Vec<u8>> = raw
            .split(|byte| *byte == 0x1f)
            .map(<[u8]>::to_vec)
            .collect();
        if fields.len() == COLUMNS + 1 && fields[COLUMNS].is_empty() {
            fields.pop();
        }
        if fields.len() > COLUMNS {
            continue;
        }
        fields.resize(COLUMNS, Vec::new());
        fields[0] = rule.normal_field(&fields[0]).into_owned();
        let deleted = !fields[2].is_empty();
        let blank = deleted && fields[2].iter().all(u8::is_ascii_whitespace);
        let Some(updated) = iso::parse_ns(&fields[1]) else {
            continue;
        };
        if fields[0].is_empty() || blank {
            continue;
        }
        for field in &mut fields {
            let text = String::from_utf8(std::mem::take(field)).unwrap();
            *field = text.replace('\r', "\u{1b}r").into_bytes();
        }
        let key = fields[0].clone();
        let rank = (updated, deleted, fields);
        if records.get(&key).is_none_or(|known| *known < rank) {
            records.insert(key, rank);
        }
    }
    let mut output = Vec::new();
    for (_, _, fields) in records.values() {
        output.extend(fields.join(&0x1f));
        output.push(b'\n');
    }
    output
}

/// A folder in memory, for one run.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let memory = PathBuf::from("/dev/shm");
        let parent = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let path = parent.join(format!("dfq-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn rules(&self, key_rule: KeyRule, memory_bytes: usize) -> Rules {
        Rules {
            columns: COLUMNS,
            key: 0,
            updated_at: 1,
            deleted_at: 2,
            key_rule,
            shard: None,
            drop_deleted_before_ns: None,
            now_ns: 0,
            max_record_bytes: 1 << 20,
            memory_bytes,
            scratch: self.path(""),
        }
    }

    fn merge(
        &self,
        shard: Option<&str>,
        bodies: &[&[u8]],
        rules: &Rules,
        name: &str,
    ) -> Result<(String, Report), dfq_core::error::Error> {
        let inbox: Vec<_> = bodies
            .iter()
            .map(|body| ("i".to_owned(), Body::Bytes(body)))
            .collect();
        let output = self.path(name);
        let report = merge(
            shard,
            &inbox,
            &output,
            &self.path(&format!("{name}.rejects")),
            rules,
        )?;
        Ok((output, report))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}
