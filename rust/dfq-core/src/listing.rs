//! Reads one page of a bucket's listing (ListObjectsV2) straight from its XML.
//!
//! A page of a thousand keys is the largest answer a store gives, and a general parser spends
//! most of its time on trees nobody looks at. This one walks the tags once, keeps the four fields
//! that matter and refuses a page that is not whole: half a page must never pass for a short one.

use crate::time;

/// One object of a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its key, without the prefix that was asked to be left out.
    pub key: String,
    /// Its ETag, without the quotes.
    pub etag: String,
    /// When it was last written, by the store's clock, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Its size in bytes.
    pub size: u64,
}

/// One page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Listing {
    /// The objects, in the order of the answer.
    pub entries: Vec<Entry>,
    /// Whether there is more behind this page.
    pub is_truncated: bool,
    /// The store's own mark for the next page.
    pub next_token: Option<String>,
}

/// Reads a page, and leaves `prefix` out of its keys.
///
/// The error says what is wrong with the page, for a person.
pub fn parse(body: &[u8], prefix: &str) -> Result<Listing, String> {
    let text = std::str::from_utf8(body).map_err(|_| "it is not UTF-8".to_string())?;
    let mut reader = Reader { text, at: 0 };
    let mut listing = Listing::default();
    match reader.next()? {
        Some(Tag::Open("ListBucketResult")) => {}
        Some(Tag::Empty("ListBucketResult")) => return Ok(listing),
        _ => return Err("it does not begin with <ListBucketResult>".to_string()),
    }
    loop {
        match reader.next()? {
            Some(Tag::Open("Contents")) => listing.entries.push(entry(&mut reader, prefix)?),
            Some(Tag::Open("IsTruncated")) => {
                listing.is_truncated = reader.text_of("IsTruncated")?.trim() == "true";
            }
            Some(Tag::Open("NextContinuationToken")) => {
                listing.next_token = Some(unescape(reader.text_of("NextContinuationToken")?)?);
            }
            Some(Tag::Open(name)) => reader.skip(name)?,
            Some(Tag::Empty(_)) => {}
            Some(Tag::Close("ListBucketResult")) => return Ok(listing),
            Some(Tag::Close(name)) => return Err(format!("</{name}> closes nothing")),
            None => return Err("it ends before </ListBucketResult>".to_string()),
        }
    }
}

fn entry(reader: &mut Reader<'_>, prefix: &str) -> Result<Entry, String> {
    let (mut key, mut etag, mut modified_ms, mut size) = (None, None, None, None);
    loop {
        match reader.next()? {
            Some(Tag::Open("Key")) => key = Some(unescape(reader.text_of("Key")?)?),
            Some(Tag::Open("ETag")) => {
                let text = unescape(reader.text_of("ETag")?)?;
                etag = Some(text.trim_matches('"').to_string());
            }
            Some(Tag::Open("LastModified")) => {
                let text = reader.text_of("LastModified")?;
                let ms = time::parse(text.trim());
                modified_ms = Some(ms.ok_or_else(|| format!("{text:?} is not a time"))?);
            }
            Some(Tag::Open("Size")) => {
                let text = reader.text_of("Size")?;
                let bytes = text.trim().parse::<u64>();
                size = Some(bytes.map_err(|_| format!("{text:?} is not a size"))?);
            }
            Some(Tag::Open(name)) => reader.skip(name)?,
            Some(Tag::Empty(_)) => {}
            Some(Tag::Close("Contents")) => break,
            Some(Tag::Close(name)) => return Err(format!("</{name}> closes nothing")),
            None => return Err("it ends within an entry".to_string()),
        }
    }
    let missing = |name: &str| format!("an entry has no <{name}>");
    let mut key = key.ok_or_else(|| missing("Key"))?;
    if !key.starts_with(prefix) {
        return Err(format!("the key {key:?} does not begin with {prefix:?}"));
    }
    key.drain(..prefix.len());
    Ok(Entry {
        key,
        etag: etag.ok_or_else(|| missing("ETag"))?,
        modified_ms: modified_ms.ok_or_else(|| missing("LastModified"))?,
        size: size.ok_or_else(|| missing("Size"))?,
    })
}

enum Tag<'a> {
    Open(&'a str),
    Empty(&'a str),
    Close(&'a str),
}

/// Walks the tags of a text.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    /// The next tag; declarations, comments and the text between tags are passed over.
    fn next(&mut self) -> Result<Option<Tag<'a>>, String> {
        loop {
            let Some(start) = self.find("<") else {
                return Ok(None);
            };
            self.at = start + 1;
            let rest = &self.text[self.at..];
            if rest.starts_with("!--") {
                self.pass("-->")?;
            } else if rest.starts_with(['!', '?']) {
                self.pass(">")?;
            } else {
                return self.tag().map(Some);
            }
        }
    }

    /// The tag whose '<' was just passed.
    fn tag(&mut self) -> Result<Tag<'a>, String> {
        let end = self.find(">").ok_or("it ends within a tag")?;
        let inner = &self.text[self.at..end];
        self.at = end + 1;
        let name = |text: &'a str| text.split_ascii_whitespace().next().unwrap_or_default();
        Ok(if let Some(closing) = inner.strip_prefix('/') {
            Tag::Close(name(closing))
        } else if let Some(empty) = inner.strip_suffix('/') {
            Tag::Empty(name(empty))
        } else {
            Tag::Open(name(inner))
        })
    }

    /// The text up to the closing tag of the element that was just opened.
    fn text_of(&mut self, name: &str) -> Result<&'a str, String> {
        let start = self.at;
        let end = self
            .find("<")
            .ok_or_else(|| format!("it ends within <{name}>"))?;
        self.at = end + 1;
        match self.tag()? {
            Tag::Close(closed) if closed == name => Ok(&self.text[start..end]),
            _ => Err(format!("<{name}> holds more than text")),
        }
    }

    /// Passes over the element that was just opened.
    fn skip(&mut self, name: &str) -> Result<(), String> {
        let mut depth = 1_u32;
        while depth > 0 {
            match self.next()? {
                Some(Tag::Open(_)) => depth += 1,
                Some(Tag::Close(_)) => depth -= 1,
                Some(Tag::Empty(_)) => {}
                None => return Err(format!("it ends within <{name}>")),
            }
        }
        Ok(())
    }

    fn find(&self, what: &str) -> Option<usize> {
        self.text[self.at..].find(what).map(|found| self.at + found)
    }

    fn pass(&mut self, what: &str) -> Result<(), String> {
        self.at = self.find(what).ok_or("it ends within a declaration")? + what.len();
        Ok(())
    }
}

/// The text that an escaped one stands for.
fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        plain.push_str(&rest[..start]);
        let end = rest[start..]
            .find(';')
            .ok_or_else(|| format!("{text:?} has a '&' without its ';'"))?;
        let name = &rest[start + 1..start + end];
        let character = character(name).ok_or_else(|| format!("no character is &{name};"))?;
        plain.push(character);
        rest = &rest[start + end + 1..];
    }
    plain.push_str(rest);
    Ok(plain)
}

fn character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(hex) => u32::from_str_radix(hex, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>b</Name><Prefix>q/</Prefix>
<KeyCount>2</KeyCount><MaxKeys>2</MaxKeys><Delimiter/><IsTruncated>true</IsTruncated>
<NextContinuationToken>a&amp;b</NextContinuationToken>
<Contents><Key>q/a&amp;&#38;&lt;&#x263a;</Key><LastModified>1970-01-01T00:00:01.000Z</LastModified>
<ETag>&quot;e1&quot;</ETag><Size>7</Size><StorageClass>STANDARD</StorageClass></Contents>
<!-- <Contents> --><Contents><ETag>"e2"</ETag><Owner><ID>7</ID><Key>no</Key></Owner><Key>q/b</Key>
<ChecksumAlgorithm>CRC32</ChecksumAlgorithm><Size>0</Size>
<LastModified>1970-01-01T00:00:02Z</LastModified></Contents></ListBucketResult>"#;

    fn entry(key: &str, etag: &str, modified_ms: i64, size: u64) -> Entry {
        Entry {
            key: key.to_string(),
            etag: etag.to_string(),
            modified_ms,
            size,
        }
    }

    #[test]
    fn a_page_is_read_whole_and_in_order() {
        let listing = parse(PAGE.as_bytes(), "q/").unwrap();
        assert_eq!(
            listing.entries,
            [entry("a&&<☺", "e1", 1000, 7), entry("b", "e2", 2000, 0)]
        );
        assert!(listing.is_truncated);
        assert_eq!(listing.next_token.as_deref(), Some("a&b"));
    }

    #[test]
    fn a_page_cut_anywhere_is_refused() {
        for end in 0..PAGE.len() {
            assert!(
                parse(&PAGE.as_bytes()[..end], "q/").is_err(),
                "cut at {end}"
            );
        }
    }

    #[test]
    fn an_empty_page_is_the_end() {
        for page in [
            "<ListBucketResult/>",
            "<ListBucketResult></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        ] {
            assert_eq!(parse(page.as_bytes(), "q/"), Ok(Listing::default()));
        }
    }

    #[test]
    fn what_is_no_listing_is_refused() {
        let entry = |inner: &str| {
            format!("<ListBucketResult><Contents>{inner}</Contents></ListBucketResult>")
        };
        let rest = "<ETag>e</ETag><Size>1</Size><LastModified>1970-01-01T00:00:01Z</LastModified>";
        for page in [
            String::new(),
            "<html><body>It works!</body></html>".to_string(),
            "<Error><Code>SlowDown</Code></Error>".to_string(),
            "<ListBucketResult></Contents></ListBucketResult>".to_string(),
            entry(""),
            entry(&format!("<Key>elsewhere</Key>{rest}")),
            entry(&format!("<Key>q/&nonsense;</Key>{rest}")),
            entry(&format!("<Key>q/&#xd800;</Key>{rest}")),
            entry(&format!("<Key>q/<b>x</b></Key>{rest}")),
            entry("<Key>q/a</Key><ETag>e</ETag><Size>-1</Size>"),
            entry("<Key>q/a</Key><ETag>e</ETag><LastModified>yesterday</LastModified>"),
        ] {
            assert!(parse(page.as_bytes(), "q/").is_err(), "{page}");
        }
        assert!(parse(b"<ListBucketResult>\xff</ListBucketResult>", "").is_err());
    }
}
