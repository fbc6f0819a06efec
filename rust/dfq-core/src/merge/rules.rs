//! What a merge goes by.

use super::key::KeyRule;

/// The schema of an index and the bounds of a merge. Columns are counted from 0.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How many columns there are.
    pub columns: usize,
    /// The column of the key.
    pub key: usize,
    /// The column that says which record is newer.
    pub updated_at: usize,
    /// The column that is not empty in a tombstone.
    pub deleted_at: usize,
    /// How keys are made alike.
    pub key_rule: KeyRule,
    /// The shard that all keys belong to, if there are shards.
    pub shard: Option<u8>,
    /// Tombstones older than this, in nanoseconds since 1970, are dropped.
    pub drop_deleted_before_ns: Option<i128>,
    /// The time of day, to know what is in the future.
    pub now_ns: i128,
    /// A longer record is rejected.
    pub max_record_bytes: usize,
    /// So much of the inbox is held in memory.
    pub memory_bytes: usize,
    /// The folder for what does not fit.
    pub scratch: String,
}

impl Rules {
    /// What is wrong with them, if anything.
    pub fn problem(&self) -> Option<String> {
        let own = [
            ("key", self.key),
            ("updated_at", self.updated_at),
            ("deleted_at", self.deleted_at),
        ];
        for (index, (name, column)) in own.iter().enumerate() {
            if *column >= self.columns {
                return Some(format!(
                    "{name} is column {column}, but there are {} columns, counted from 0",
                    self.columns
                ));
            }
            if let Some((other, _)) = own[..index].iter().find(|(_, taken)| taken == column) {
                return Some(format!("{name} and {other} are both column {column}"));
            }
        }
        let most = 1 << 31;
        (!(1..=most).contains(&self.max_record_bytes))
            .then(|| format!("max_record_bytes must be 1 to {most}"))
    }
}
