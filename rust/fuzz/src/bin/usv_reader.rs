//! Bytes of any kind are read without a panic, alike however they come; and what was read and
//! written again reads as the same.

#![no_main]

use dfq_core::usv::check;
use dfq_core::usv::reader::{Next, Reader};
use dfq_core::usv::writer::record_into;
use dfq_core::usv::Ends;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [how, size, limit, data @ ..] = data else {
        return;
    };
    let ends = match how % 3 {
        0 => Ends::Any,
        1 => Ends::Visible,
        _ => Ends::LineFeed,
    };
    let at_once = read(data, ends, usize::from(*limit), data.len().max(1));
    let in_pieces = read(data, ends, usize::from(*limit), usize::from(*size) + 1);
    assert_eq!(at_once, in_pieces);

    let rows = check::split(data, ends);
    let known = read(data, ends, 1 << 20, 4096);
    let good = |next: &Next| matches!(next, Next::Row(_));
    assert_eq!(rows.is_ok(), known.iter().all(good));
    if let Ok(rows) = rows {
        assert_eq!(
            known,
            rows.iter().cloned().map(Next::Row).collect::<Vec<_>>()
        );
        written_rows_read_as_the_same(&rows);
    }
});

fn read(data: &[u8], ends: Ends, limit: usize, size: usize) -> Vec<Next> {
    let mut reader = Reader::fed(ends, limit);
    let mut pieces = data.chunks(size);
    let mut found = Vec::new();
    loop {
        match reader.next_row().expect("nothing is read from a file") {
            Next::More => match pieces.next() {
                Some(piece) => reader.feed(piece),
                None => reader.finish(),
            },
            Next::End => return found,
            next => found.push(next),
        }
    }
}

fn written_rows_read_as_the_same(rows: &[Vec<String>]) {
    let mut written = Vec::new();
    for row in rows {
        record_into(&mut written, row.iter().map(String::as_bytes));
    }
    let lines = written.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines, rows.len());
    assert!(!written.iter().any(|byte| matches!(*byte, b'\r' | 0x1e)));
    // A record of one empty field has a separator after it, and so has one of none at all.
    let expected: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            if row.is_empty() || *row == [""] {
                vec![String::new(); 2]
            } else {
                row.clone()
            }
        })
        .collect();
    assert_eq!(
        check::split(&written, Ends::Any).expect("it is text"),
        expected
    );
}
