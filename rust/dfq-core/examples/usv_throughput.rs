//! How fast USV is read, written and hashed, beside memchr over the same bytes.
//!
//! `usv_throughput SHARD ROUNDS` prints the median of CPU seconds of each as JSON. The file is in
//! memory (the page cache) before anything is measured.

use std::io::Write as _;

use dfq_core::usv::check;
use dfq_core::usv::fields::Fields;
use dfq_core::usv::file::Input;
use dfq_core::usv::framer::{Event, Framer};
use dfq_core::usv::output::Output;
use dfq_core::usv::writer::record_into;
use dfq_core::usv::{Ends, MAX_RECORD_BYTES};
use sha2::{Digest, Sha256};

/// CPU seconds of this thread.
fn cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// Every separator of the file, found by memchr alone.
fn scan(content: &[u8]) -> u64 {
    memchr::memchr2_iter(0x1f, b'\n', content).count() as u64
}

/// Every record, checked and cut into fields.
fn parse(path: &str, mut visit: impl FnMut(&[u8], &Fields)) -> u64 {
    let mut input = Input::open(path).expect("the shard can be read");
    let mut framer = Framer::new(Ends::Any, MAX_RECORD_BYTES);
    let mut fields = Fields::default();
    let mut records = 0;
    loop {
        match framer.next() {
            Event::Record(range) => {
                assert!(framer.is_text(&range));
                let record = framer.bytes(&range);
                fields.find(record);
                visit(record, &fields);
                records += 1;
            }
            Event::More => {
                let count = input.read(framer.room()).expect("the shard can be read");
                framer.fill(count);
            }
            Event::End => return records,
            _ => panic!("a record is too long"),
        }
    }
}

fn write(path: &str, mut out: Option<Output>) -> u64 {
    let mut buffer = Vec::with_capacity(1 << 20);
    let records = parse(path, |record, fields| {
        let cut = (0..fields.count()).map(|index| &record[fields.range(index)]);
        match &mut out {
            Some(out) => {
                record_into(out.buffer(), cut);
                out.settle().expect("the disk has room");
            }
            None => {
                record_into(&mut buffer, cut);
                if buffer.len() > 1 << 19 {
                    buffer.clear();
                }
            }
        }
    });
    if let Some(out) = out {
        out.finish().expect("the disk has room");
    }
    records
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, rounds] = &arguments[..] else {
        panic!("usage: usv_throughput SHARD ROUNDS");
    };
    let rounds: usize = rounds.parse().expect("a number of rounds");
    let content = std::fs::read(path).expect("the shard can be read");
    let output = format!("{path}.copy");
    let mut times: Vec<(&str, Vec<f64>)> = Vec::new();
    for _ in 0..rounds {
        let mut measure = |name: &'static str, run: &mut dyn FnMut() -> u64| {
            let start = cpu();
            std::hint::black_box(run());
            let took = cpu() - start;
            match times.iter_mut().find(|(known, _)| *known == name) {
                Some((_, all)) => all.push(took),
                None => times.push((name, vec![took])),
            }
        };
        measure("memchr", &mut || scan(&content));
        measure("parse", &mut || parse(path, |_, _| {}));
        measure("count", &mut || {
            check::count(path, Ends::Any).expect("it can be read")
        });
        let create = || Output::create(&output).expect("the output is new");
        let remove = || std::fs::remove_file(&output).expect("the copy is there");
        measure("parse_write", &mut || write(path, None));
        measure("parse_write_file", &mut || {
            write(path, Some(create().without_hash()))
        });
        remove();
        measure("parse_write_hash", &mut || write(path, Some(create())));
        remove();
        measure("hash", &mut || u64::from(Sha256::digest(&content)[0]));
    }
    let mut out = std::io::stdout();
    let figures: Vec<String> = times
        .iter_mut()
        .map(|(name, all)| {
            all.sort_by(f64::total_cmp);
            format!("\"{name}\": {}", all[all.len() / 2])
        })
        .collect();
    writeln!(
        out,
        "{{\"bytes\": {}, {}}}",
        content.len(),
        figures.join(", ")
    )
    .expect("stdout");
}
