//! Finds the records in a stream of bytes, with bounded memory.
//!
//! It reads nothing itself: bytes are put in ([`Framer::room`], [`Framer::fill`]) and records come
//! out ([`Framer::next`]) as ranges of its buffer, good until more is put in. A record that is too
//! long comes in parts, so that it can be passed on without ever being held.

use std::ops::Range;

use memchr::{memchr, memchr2, memrchr2};

use super::visible;
use super::{LINE, RECORD};

/// What ends a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// A line feed or 0x1E.
    Any,
    /// A line feed alone: what dfq itself writes. An empty line is handed out, too.
    LineFeed,
    /// ␞ or 0x1E; line breaks around a record are layout.
    Visible,
}

/// What comes next in the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A whole record, without its end.
    Record(Range<usize>),
    /// A part of a record that is too long.
    LongPart(Range<usize>),
    /// The last part of one.
    LongEnd(Range<usize>),
    /// Put in more bytes, or say that there are none.
    More,
    /// Nothing.
    End,
}

const CHUNK: usize = 256 * 1024;

/// The records of a stream.
pub struct Framer {
    ends: Ends,
    limit: usize,
    buffer: Vec<u8>,
    /// Nothing before this is needed any more.
    start: usize,
    /// No record ends between `start` and here.
    scanned: usize,
    filled: usize,
    finished: bool,
    in_long: bool,
    unended: bool,
    /// Up to here the buffer is known to be UTF-8.
    text_to: usize,
    /// Up to here it is not, as a whole: look at each record.
    mixed_to: usize,
}

impl Framer {
    /// A stream whose records have at most `limit` bytes.
    pub fn new(ends: Ends, limit: usize) -> Framer {
        Framer::with_chunk(ends, limit, CHUNK)
    }

    /// The same, with a buffer of `chunk` bytes to begin with.
    pub fn with_chunk(ends: Ends, limit: usize, chunk: usize) -> Framer {
        Framer {
            ends,
            limit,
            buffer: vec![0; chunk.max(16)],
            start: 0,
            scanned: 0,
            filled: 0,
            finished: false,
            in_long: false,
            unended: false,
            text_to: 0,
            mixed_to: 0,
        }
    }

    /// Begins another stream with the same buffer.
    pub fn restart(&mut self) {
        (self.start, self.scanned, self.filled) = (0, 0, 0);
        (self.text_to, self.mixed_to) = (0, 0);
        (self.finished, self.in_long, self.unended) = (false, false, false);
    }

    /// Where to put bytes; never empty.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.filled, 0);
            self.filled -= self.start;
            self.scanned -= self.start;
            self.text_to = self.text_to.saturating_sub(self.start);
            self.mixed_to = self.mixed_to.saturating_sub(self.start);
            self.start = 0;
        }
        if self.filled == self.buffer.len() {
            let enough = (self.filled * 2).min(self.limit.saturating_add(CHUNK));
            self.buffer.resize(enough.max(self.filled + 16), 0);
        }
        &mut self.buffer[self.filled..]
    }

    /// So many bytes were put into the room; none: there are no more.
    pub fn fill(&mut self, count: usize) {
        self.filled += count;
        self.finished |= count == 0;
    }

    /// Puts in as much of `bytes` as there is room for; returns the rest.
    pub fn feed<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let room = self.room();
        let count = bytes.len().min(room.len());
        room[..count].copy_from_slice(&bytes[..count]);
        self.fill(count);
        &bytes[count..]
    }

    /// The bytes of an event.
    pub fn bytes(&self, range: &Range<usize>) -> &[u8] {
        &self.buffer[range.clone()]
    }

    /// Whether the last record of the stream came without its end.
    pub fn unended(&self) -> bool {
        self.unended
    }

    /// The next record.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Event {
        loop {
            if let Some((end, next)) = self.find_end() {
                let range = self.start..end;
                self.start = next;
                self.scanned = next;
                if let Some(event) = self.whole(range) {
                    return event;
                }
                continue;
            }
            if self.finished {
                let rest = self.start..self.filled;
                self.start = self.filled;
                self.scanned = self.filled;
                if rest.is_empty() && !self.in_long {
                    return Event::End;
                }
                self.unended = true;
                match self.whole(rest) {
                    Some(event) => return event,
                    None => return Event::End,
                }
            }
            // A separator that has only begun is no part of the record.
            if self.scanned - self.start > self.limit {
                let part = self.start..self.scanned;
                self.start = self.scanned;
                self.in_long = true;
                return Event::LongPart(part);
            }
            return Event::More;
        }
    }

    /// What a range is that reaches to the end of its record. None: an empty line.
    fn whole(&mut self, range: Range<usize>) -> Option<Event> {
        if std::mem::take(&mut self.in_long) {
            return Some(Event::LongEnd(range));
        }
        if range.len() > self.limit {
            return Some(Event::LongEnd(range));
        }
        let range = match self.ends {
            Ends::Visible => visible::without_line_breaks(&self.buffer, range),
            _ => range,
        };
        (!range.is_empty() || self.ends == Ends::LineFeed).then_some(Event::Record(range))
    }

    /// Where the current record ends and where the next one starts.
    fn find_end(&mut self) -> Option<(usize, usize)> {
        let ahead = &self.buffer[self.scanned..self.filled];
        let found = match self.ends {
            Ends::Any => memchr2(LINE, RECORD, ahead),
            Ends::LineFeed => memchr(LINE, ahead),
            Ends::Visible => match visible::find_end(ahead) {
                Ok((end, next)) => return Some((self.scanned + end, self.scanned + next)),
                Err(scanned) => {
                    self.scanned += scanned;
                    return None;
                }
            },
        };
        match found {
            Some(at) => Some((self.scanned + at, self.scanned + at + 1)),
            None => {
                self.scanned = self.filled;
                None
            }
        }
    }

    /// Whether a record is UTF-8. As many records as the buffer has are checked in one go.
    pub fn is_text(&mut self, range: &Range<usize>) -> bool {
        if range.end <= self.text_to {
            return true;
        }
        if self.ends != Ends::Visible && range.end > self.mixed_to {
            let ahead = &self.buffer[range.start..self.filled];
            let to = memrchr2(LINE, RECORD, ahead).map_or(0, |at| range.start + at);
            if to >= range.end {
                if simdutf8::basic::from_utf8(&self.buffer[range.start..to]).is_ok() {
                    self.text_to = to;
                    return true;
                }
                self.mixed_to = to;
            }
        }
        simdutf8::basic::from_utf8(&self.buffer[range.clone()]).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(ends: Ends, limit: usize, chunk: usize, data: &[u8]) -> Vec<(String, bool)> {
        let mut framer = Framer::with_chunk(ends, limit, 16);
        let mut pieces = data.chunks(chunk);
        let mut found = Vec::new();
        let mut long = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        loop {
            match framer.next() {
                Event::Record(range) => found.push((text(framer.bytes(&range)), false)),
                Event::LongPart(range) => long.extend_from_slice(framer.bytes(&range)),
                Event::LongEnd(range) => {
                    long.extend_from_slice(framer.bytes(&range));
                    found.push((text(&std::mem::take(&mut long)), true));
                }
                Event::More => match pieces.next() {
                    Some(mut piece) => {
                        while !piece.is_empty() {
                            piece = framer.feed(piece);
                        }
                    }
                    None => framer.fill(0),
                },
                Event::End => return found,
            }
        }
    }

    #[test]
    fn records_are_the_same_wherever_reads_end() {
        let data = "a\x1fb\x1e\nc\n\n\x1e\rd\r\nüß\x1elast".as_bytes();
        let whole = frames(Ends::Any, 100, data.len(), data);
        let texts: Vec<_> = whole.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["a\x1fb", "c", "\rd\r", "üß", "last"]);
        for chunk in 1..8 {
            assert_eq!(frames(Ends::Any, 100, chunk, data), whole);
        }
    }

    #[test]
    fn a_record_that_is_too_long_comes_in_parts_and_the_next_one_whole() {
        let long = "x".repeat(1000);
        let data = format!("ok\n{long}\nafter\n{long}");
        for chunk in [1, 7, 500, 5000] {
            let found = frames(Ends::Any, 20, chunk, data.as_bytes());
            let expected = [
                ("ok", false),
                (&long, true),
                ("after", false),
                (&long, true),
            ];
            assert_eq!(found, expected.map(|(text, long)| (text.to_owned(), long)));
        }
    }

    #[test]
    fn the_limit_is_the_same_wherever_reads_end() {
        let data = "a␞bc␞\n\nd␞\n".as_bytes();
        let whole = frames(Ends::Visible, 2, data.len(), data);
        let long: Vec<_> = whole.iter().map(|(_, long)| *long).collect();
        assert_eq!(long, [false, false, true]);
        for chunk in 1..8 {
            assert_eq!(frames(Ends::Visible, 2, chunk, data), whole);
        }
    }

    #[test]
    fn only_line_feeds_end_records_of_our_own_and_empty_ones_show() {
        let found = frames(Ends::LineFeed, 100, 3, b"a\x1eb\n\nc");
        let texts: Vec<_> = found.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(texts, ["a\x1eb", "", "c"]);
    }

    #[test]
    fn the_check_for_utf8_tells_good_records_from_bad_ones_beside_them() {
        let mut framer = Framer::new(Ends::Any, 100);
        framer.feed("gut\nsch\u{f6}n\n".as_bytes());
        framer.feed(b"b\xff\ngood\n\xc3\n");
        framer.fill(0);
        let mut found = Vec::new();
        while let Event::Record(range) = framer.next() {
            found.push(framer.is_text(&range));
        }
        assert_eq!(found, [true, true, false, true, false]);
    }
}
