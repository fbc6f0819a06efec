//! Reads rows: from a file, or from bytes that are fed in.

use super::escape::unescape;
use super::fields::Fields;
use super::file::Input;
use super::framer::{Ends, Event, Framer};
use super::visible;
use crate::error::Result;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// The fields of a record.
    Row(Vec<String>),
    /// A record that can't be read, and why. Reading can go on after it.
    Bad(String),
    /// All that was fed in is read.
    More,
    /// Nothing.
    End,
}

/// The rows of a stream.
pub struct Reader {
    framer: Framer,
    input: Option<Input>,
    fields: Fields,
    ends: Ends,
    limit: usize,
    records: u64,
}

impl Reader {
    /// Rows of what is fed in.
    pub fn fed(ends: Ends, limit: usize) -> Reader {
        Reader {
            framer: Framer::new(ends, limit),
            input: None,
            fields: Fields::default(),
            ends,
            limit,
            records: 0,
        }
    }

    /// Rows of a file.
    pub fn open(path: &str, ends: Ends, limit: usize) -> Result<Reader> {
        let input = Input::open(path).map_err(|refusal| refusal.into_error(path))?;
        let mut reader = Reader::fed(ends, limit);
        reader.input = Some(input);
        Ok(reader)
    }

    /// Puts bytes in.
    pub fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = self.framer.feed(bytes);
        }
    }

    /// Says that no more bytes will be put in.
    pub fn finish(&mut self) {
        self.framer.fill(0);
    }

    /// How many records were read, bad ones included: the number of the last one.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// How many bytes of the file were read.
    pub fn bytes_read(&self) -> u64 {
        self.input
            .as_ref()
            .map_or(0, |input| input.size() - input.left())
    }

    /// How large the file is.
    pub fn size(&self) -> u64 {
        self.input.as_ref().map_or(0, Input::size)
    }

    /// The next row.
    pub fn next_row(&mut self) -> Result<Next> {
        loop {
            match self.framer.next() {
                Event::Record(range) => {
                    self.records += 1;
                    if !self.framer.is_text(&range) {
                        return Ok(Next::Bad(self.not_text(&range)));
                    }
                    let record = self.framer.bytes(&range);
                    if self.ends == Ends::Visible {
                        let text = String::from_utf8_lossy(record);
                        return Ok(Next::Row(visible::fields(&text)));
                    }
                    self.fields.find(record);
                    return Ok(Next::Row(row(record, &self.fields)));
                }
                Event::LongPart(_) => {}
                Event::LongEnd(_) => {
                    self.records += 1;
                    return Ok(Next::Bad(format!("longer than {} bytes", self.limit)));
                }
                Event::More => match &mut self.input {
                    Some(input) => {
                        let count = input.read(self.framer.room())?;
                        self.framer.fill(count);
                    }
                    None => return Ok(Next::More),
                },
                Event::End => return Ok(Next::End),
            }
        }
    }

    fn not_text(&self, range: &std::ops::Range<usize>) -> String {
        match std::str::from_utf8(self.framer.bytes(range)) {
            Err(error) => format!("not UTF-8 at its byte {}", error.valid_up_to() + 1),
            Ok(_) => "not UTF-8".to_owned(),
        }
    }
}

/// The fields of a record that is UTF-8.
fn row(record: &[u8], fields: &Fields) -> Vec<String> {
    (0..fields.count())
        .map(|index| text(&unescape(&record[fields.range(index)])))
        .collect()
}

/// The record was checked: a separator or an escape never splits a character.
fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usv::MAX_RECORD_BYTES;

    fn read(ends: Ends, limit: usize, data: &[u8]) -> Vec<Next> {
        let mut reader = Reader::fed(ends, limit);
        reader.feed(data);
        reader.finish();
        let mut found = Vec::new();
        loop {
            match reader.next_row().unwrap() {
                Next::End => return found,
                next => found.push(next),
            }
        }
    }

    fn rows(rows: &[&[&str]]) -> Vec<Next> {
        let row = |row: &&[&str]| Next::Row(row.iter().map(|field| (*field).to_owned()).collect());
        rows.iter().map(row).collect()
    }

    #[test]
    fn rows_are_unescaped() {
        let found = read(Ends::Any, MAX_RECORD_BYTES, b"a\x1bn\x1fb\n\x1f\n");
        assert_eq!(found, rows(&[&["a\n", "b"], &["", ""]]));
    }

    #[test]
    fn a_bad_record_is_told_and_the_next_one_is_read() {
        let data = [b"ok\n".as_slice(), b"x\xff\n", &[b'y'; 50], b"\nok\n"].concat();
        let found = read(Ends::Any, 20, &data);
        assert_eq!(found[1], Next::Bad("not UTF-8 at its byte 2".into()));
        assert_eq!(found[2], Next::Bad("longer than 20 bytes".into()));
        assert_eq!(found[3], Next::Row(vec!["ok".into()]));
    }

    #[test]
    fn the_visible_form_is_read_when_asked() {
        let data = "a␟b␞\n1\n,2␟␛␞␞\n";
        let found = read(Ends::Visible, MAX_RECORD_BYTES, data.as_bytes());
        assert_eq!(found, rows(&[&["a", "b"], &["1\n,2", "␞"]]));
    }
}
