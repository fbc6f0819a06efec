//! What a merge did.

/// Why a record was rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It is not UTF-8.
    NotUtf8,
    /// It is longer than a record may be.
    TooLong,
    /// It has more fields than the index has columns.
    TooManyFields,
    /// Its key is empty.
    MissingKey,
    /// It does not say when it was updated.
    MissingUpdatedAt,
    /// What it says is no time.
    BadUpdatedAt,
    /// Its deleted_at is white space.
    BadDeletedAt,
    /// Its key belongs to another shard.
    Misplaced,
    /// The whole thing is no regular file.
    NotAFile,
    /// The whole file is not there any more.
    Missing,
}

impl Kind {
    /// The name under which it crosses into other languages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::NotUtf8 => "not_utf8",
            Kind::TooLong => "too_long",
            Kind::TooManyFields => "too_many_fields",
            Kind::MissingKey => "missing_key",
            Kind::MissingUpdatedAt => "missing_updated_at",
            Kind::BadUpdatedAt => "bad_updated_at",
            Kind::BadDeletedAt => "bad_deleted_at",
            Kind::Misplaced => "misplaced",
            Kind::NotAFile => "not_a_file",
            Kind::Missing => "missing",
        }
    }
}

/// Something that was not merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reject {
    /// The name of the inbox entry.
    pub name: String,
    /// Which of its records, counted from 1; 0: all of it.
    pub record: u64,
    /// Why.
    pub kind: Kind,
    /// The same for a person.
    pub message: String,
    /// Where its raw bytes stand in the file of rejects.
    pub offset: u64,
    /// How many they are.
    pub length: u64,
}

/// What a merge did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Records in the output, tombstones included.
    pub records: u64,
    /// Tombstones in the output.
    pub tombstones: u64,
    /// The size of the output.
    pub bytes: u64,
    /// Of the output, in hex digits.
    pub sha256: String,
    /// The latest `updated_at` in the output.
    pub newest_ns: Option<i128>,
    /// Whether the output differs from the shard.
    pub changed: bool,
    /// Records of the inbox that won.
    pub taken: u64,
    /// Records of the inbox that lost, or were there already.
    pub superseded: u64,
    /// Records of the inbox whose key was rewritten.
    pub normalised: u64,
    /// Records, of the inbox or the shard, that had fewer fields than there are columns.
    pub padded: u64,
    /// Tombstones that were left out because they are old.
    pub dropped: u64,
    /// Records of the inbox that say they are from later than tomorrow: name and number.
    pub future: Vec<(String, u64)>,
    /// What was not merged.
    pub rejects: Vec<Reject>,
}
