use super::find::{find, Place};
use super::key::KeyRule;
use super::report::Kind;
use super::*;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn content(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn rules(&self) -> Rules {
        Rules {
            columns: 4,
            key: 0,
            updated_at: 2,
            deleted_at: 3,
            key_rule: KeyRule::Exact,
            shard: None,
            drop_deleted_before_ns: None,
            now_ns: i128::from(i64::MAX),
            max_record_bytes: 1000,
            memory_bytes: 1 << 20,
            scratch: self.path(""),
        }
    }

    /// Merges a body into "shard", and makes that of it.
    fn merge(&self, body: &[u8], rules: &Rules) -> Report {
        let shard = self.path("shard");
        let had = std::fs::exists(&shard).unwrap();
        let (output, rejects) = (self.path("output"), self.path("rejects"));
        let inbox = [("body".to_owned(), Body::Bytes(body))];
        let report = merge(had.then_some(&shard), &inbox, &output, &rejects, rules).unwrap();
        std::fs::rename(output, shard).unwrap();
        report
    }
}

fn row(key: &str, value: &str, day: usize) -> String {
    format!("{key}\x1f{value}\x1f2026-01-{day:02}\x1f\n")
}

/// Records of 500 keys in no order, several of each, of which the one of the last day wins.
fn many() -> (String, String) {
    let mut body = String::new();
    for number in 0..5000 {
        let key = number * 7919 % 500;
        body += &row(
            &format!("k{key:03}"),
            &"v".repeat(key % 40),
            1 + number / 500,
        );
    }
    let newest = (0..500).map(|key| row(&format!("k{key:03}"), &"v".repeat(key % 40), 10));
    (body, newest.collect())
}

#[test]
fn the_newest_record_wins_wherever_it_comes_from() {
    let folder = Folder::new();
    let rules = folder.rules();
    let first = folder.merge(
        (row("b", "old", 2) + &row("c", "new", 9)).as_bytes(),
        &rules,
    );
    assert_eq!((first.records, first.taken, first.changed), (2, 2, true));
    let body = row("a", "first", 1) + &row("b", "new", 3) + &row("c", "old", 8);
    let second = folder.merge(body.as_bytes(), &rules);
    let expected = row("a", "first", 1) + &row("b", "new", 3) + &row("c", "new", 9);
    assert_eq!(folder.content("shard"), expected.as_bytes());
    assert_eq!((second.taken, second.superseded), (2, 1));
    assert!(!folder.merge(expected.as_bytes(), &rules).changed);
}

#[test]
fn what_is_spilled_merges_like_what_is_held() {
    let (body, newest) = many();
    // The last bound makes more runs than are merged at once.
    for memory_bytes in [1 << 20, 64 << 10, 4 << 10] {
        let folder = Folder::new();
        let mut rules = folder.rules();
        rules.memory_bytes = memory_bytes;
        let report = folder.merge(body.as_bytes(), &rules);
        assert!(folder.content("shard") == newest.as_bytes());
        assert_eq!((report.taken, report.superseded), (500, 4500));
        let left: Vec<_> = std::fs::read_dir(folder.path("")).unwrap().collect();
        assert_eq!(left.len(), 1, "runs have no name");
    }
}

#[test]
fn a_large_shard_is_hashed_like_a_small_one() {
    let folder = Folder::new();
    let value = "x".repeat(900);
    let rows = (0..2000).map(|number| row(&format!("k{number:04}"), &value, 1));
    let body: String = rows.collect();
    let report = folder.merge(body.as_bytes(), &folder.rules());
    assert!(folder.content("shard") == body.as_bytes());
    let mut alone = crate::usv::output::Output::create(&folder.path("alone")).unwrap();
    alone.write(body.as_bytes()).unwrap();
    let (written, _) = alone.finish().unwrap();
    assert_eq!(
        (report.bytes, report.sha256),
        (written.bytes, written.sha256)
    );
}

#[test]
fn a_damaged_shard_ends_the_merge_though_much_is_written_by_then() {
    let folder = Folder::new();
    let value = "x".repeat(900);
    let rows = (0..2000).map(|number| row(&format!("k{number:04}"), &value, 1));
    let shard = rows.collect::<String>() + &row("a", "out of order", 1);
    std::fs::write(folder.path("shard"), &shard).unwrap();
    let (shard, output, rejects) = (folder.path("shard"), folder.path("o"), folder.path("r"));
    let error = merge(Some(&shard), &[], &output, &rejects, &folder.rules()).unwrap_err();
    assert_eq!(error.kind, crate::error::Kind::Damaged);
    assert!(error.message.contains("record 2001 of "));
}

#[test]
fn rejects_are_copied_with_their_bytes_and_told_with_their_place() {
    let folder = Folder::new();
    let long = "y".repeat(5000);
    let good = row("a", "v", 1);
    let body = [
        b"b\x1f\xff\x1f2026-01-01\n",
        good.as_bytes(),
        long.as_bytes(),
    ]
    .concat();
    let report = folder.merge(&body, &folder.rules());
    assert_eq!(folder.content("shard"), good.as_bytes());
    let content = folder.content("rejects");
    let told = report.rejects.iter().map(|reject| {
        let (from, length) = (reject.offset as usize, reject.length as usize);
        (reject.record, reject.kind, &content[from..from + length])
    });
    let expected = [
        (1, Kind::NotUtf8, &b"b\x1f\xff\x1f2026-01-01"[..]),
        (3, Kind::TooLong, long.as_bytes()),
    ];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[test]
fn a_flood_of_rejects_is_told_in_lots_though_no_two_neighbours_are_alike() {
    let folder = Folder::new();
    let mut rules = folder.rules();
    rules.shard = Some(crate::id::shard_of("here"));
    let elsewhere = row("elsewhere", "v", 1);
    let many_fields = row("here", "v\x1fv\x1fv", 1);
    let mut body = format!("x\n\x1f\n{elsewhere}").repeat(10_000);
    body += &many_fields;
    let report = folder.merge(body.as_bytes(), &rules);
    assert!(report.rejects.len() <= 10_002, "{}", report.rejects.len());
    let content = folder.content("rejects");
    let of = |misplaced: bool| {
        let rejects = report.rejects.iter();
        let told = rejects.filter(|reject| (reject.kind == Kind::Misplaced) == misplaced);
        let bytes = told.map(|reject| {
            let from = reject.offset as usize;
            [&content[from..from + reject.length as usize], b"\n"].concat()
        });
        String::from_utf8(bytes.collect::<Vec<_>>().concat()).unwrap()
    };
    assert!(of(true) == elsewhere.repeat(10_000));
    assert!(of(false) == "x\n\x1f\n".repeat(10_000) + &many_fields);
    // A compiler that knows too few columns is told so by the kind.
    let last = report
        .rejects
        .iter()
        .rfind(|one| one.kind != Kind::Misplaced);
    let last = last.unwrap();
    assert_eq!(last.kind, Kind::TooManyFields);
    let range = "records 10000 to 30001, some for another reason";
    assert!(last.message.ends_with(range), "{}", last.message);
}

#[test]
fn what_is_moved_is_told_in_pieces_that_can_be_loaded() {
    let folder = Folder::new();
    let mut rules = folder.rules();
    rules.shard = Some(crate::id::shard_of("here"));
    let body = row("elsewhere", &"v".repeat(900), 1).repeat(14_000);
    let report = folder.merge(body.as_bytes(), &rules);
    let longest = report.rejects.iter().map(|reject| reject.length).max();
    assert!((900_000..=1 << 20).contains(&longest.unwrap()));
    assert!(report.rejects.len() < 10_010, "{}", report.rejects.len());
    assert!(folder.content("rejects") == body.as_bytes());
}

#[test]
fn a_canonical_record_may_be_longer_than_one_of_the_inbox() {
    let folder = Folder::new();
    let rules = folder.rules();
    let mut raw = row("a", &"\r".repeat(950), 1);
    assert!(raw.len() <= rules.max_record_bytes);
    folder.merge(raw.as_bytes(), &rules);
    let merged = folder.merge(row("b", "v", 1).as_bytes(), &rules);
    assert_eq!((merged.records, merged.changed), (2, true));
    raw = raw.replace('\r', "\x1br");
    assert!(folder.content("shard") == (raw + &row("b", "v", 1)).as_bytes());
}

#[test]
fn what_has_no_line_feed_for_too_long_is_damage() {
    let folder = Folder::new();
    let (shard, output, rejects) = (folder.path("shard"), folder.path("o"), folder.path("r"));
    // As long as a record may be, there might be one; beyond that there is no looking.
    let content = row("a", "v", 1) + &"\0".repeat(1 << 20);
    std::fs::write(&shard, content).unwrap();
    let error = merge(Some(&shard), &[], &output, &rejects, &folder.rules()).unwrap_err();
    assert_eq!(error.kind, crate::error::Kind::Damaged);
    let problem = format!("record 2 of {shard} is longer than any that was merged");
    assert!(error.message.starts_with(&problem), "{}", error.message);
}

#[test]
fn every_record_of_a_shard_is_found_and_no_other() {
    let folder = Folder::new();
    let (body, newest) = many();
    folder.merge(body.as_bytes(), &folder.rules());
    let path = folder.path("shard");
    let place = Place {
        path: &path,
        columns: 4,
        key: 0,
        key_rule: KeyRule::Exact,
    };
    for record in newest.lines() {
        let key = record.split('\x1f').next().unwrap();
        let found = find(&place, key).unwrap();
        assert_eq!(found.as_deref(), Some(record.as_bytes()));
        assert_eq!(find(&place, &format!("{key}x")).unwrap(), None);
    }
}
