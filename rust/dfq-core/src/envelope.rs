//! task.json: the envelope around a payload.
//!
//! A file with a top-level `"dfq"` key is an envelope. Any other JSON is a bare payload put there
//! by a script, and gets the default envelope.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::id;
use crate::time::Stamp;

/// The version of the files this crate writes.
pub const VERSION: u32 = 1;
/// The priority of a task that names none.
pub const NORMAL_PRIORITY: i16 = 50;
/// The history keeps this many errors, the latest.
const MAX_ERRORS: usize = 20;
/// And no more than so many bytes of them: a history must not make its task too large to read.
pub const MAX_HISTORY_BYTES: usize = 512 * 1024;

/// One entry in a task's history.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskError {
    /// When it happened.
    pub at: Stamp,
    /// At which delivery.
    pub attempt: u32,
    /// Under which fence.
    pub fence: u64,
    /// Who held the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// error, crash, timeout, expired, cancelled or buried.
    pub kind: String,
    /// What was said about it.
    pub message: String,
}

fn is_zero(value: &u32) -> bool {
    *value == 0
}

fn is_no_fence(value: &u64) -> bool {
    *value == 0
}

fn normal_priority() -> i16 {
    NORMAL_PRIORITY
}

/// A task as it stands in task.json.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Envelope {
    dfq: u32,
    /// The task's id.
    pub id: String,
    /// The name of the handler that is to do it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Higher runs first.
    #[serde(default = "normal_priority")]
    pub priority: i16,
    /// Words to choose by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The project it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// Ids that must be completed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    /// When it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<Stamp>,
    /// Not to be claimed earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Stamp>,
    /// Not to be started later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Stamp>,
    /// Deliveries before it fails, if it differs from the queue's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// A retry policy of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<RawValue>>,
    /// Follows the task through every log line.
    #[serde(default)]
    pub correlation_id: String,
    /// Deliveries so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// The greatest fence that a settled lease had.
    #[serde(default, skip_serializing_if = "is_no_fence")]
    pub fence: u64,
    /// What went wrong so far.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<TaskError>,
    /// The work itself.
    pub payload: Box<RawValue>,
}

/// Why a task.json can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Damage {
    /// It is broken; the text says how.
    Broken(String),
    /// A newer dfq wrote it; leave it alone.
    Newer(u32),
}

#[derive(Deserialize)]
struct Probe {
    dfq: Option<u32>,
}

impl Envelope {
    /// A default envelope around a payload.
    pub fn bare(id: &str, payload: Box<RawValue>) -> Self {
        Envelope {
            dfq: VERSION,
            id: id.to_owned(),
            name: None,
            priority: NORMAL_PRIORITY,
            labels: Vec::new(),
            project: None,
            depends_on: Vec::new(),
            created_at: None,
            not_before: None,
            expires_at: None,
            max_attempts: None,
            retry: None,
            correlation_id: id.to_owned(),
            attempts: 0,
            fence: 0,
            errors: Vec::new(),
            payload,
        }
    }

    /// Reads the task.json of the task `id`.
    pub fn parse(id: &str, content: &[u8]) -> Result<Self, Damage> {
        let broken = |e: serde_json::Error| Damage::Broken(format!("task.json: {e}"));
        match serde_json::from_slice::<Envelope>(content) {
            Ok(envelope) if envelope.dfq > VERSION => Err(Damage::Newer(envelope.dfq)),
            Ok(envelope) if envelope.id != id => Err(Damage::Broken(format!(
                "task.json belongs to the task {:?}",
                envelope.id
            ))),
            Ok(envelope) => match envelope
                .depends_on
                .iter()
                .find(|d| !id::is_valid(d.as_bytes()))
            {
                Some(bad) => Err(Damage::Broken(format!(
                    "depends_on names {bad:?}, which is no id"
                ))),
                None => Ok(envelope),
            },
            Err(error) => match serde_json::from_slice::<Probe>(content) {
                Ok(Probe { dfq: Some(version) }) if version > VERSION => {
                    Err(Damage::Newer(version))
                }
                Ok(Probe { dfq: Some(_) }) => Err(broken(error)),
                _ => serde_json::from_slice::<Box<RawValue>>(content)
                    .map(|payload| Envelope::bare(id, payload))
                    .map_err(broken),
            },
        }
    }

    /// As it is written to task.json.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Strings, numbers and raw JSON always serialise.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Appends to the history, forgetting the oldest beyond the bound.
    pub fn remember(&mut self, error: TaskError) {
        self.errors.push(error);
        let surplus = self.errors.len().saturating_sub(MAX_ERRORS);
        self.errors.drain(..surplus);
        let mut bytes: Vec<usize> = self
            .errors
            .iter()
            .map(|error| serde_json::to_vec(error).map_or(0, |json| json.len() + 1))
            .collect();
        while bytes.iter().sum::<usize>() > MAX_HISTORY_BYTES && bytes.len() > 1 {
            bytes.remove(0);
            self.errors.remove(0);
        }
    }

    /// Deliveries before it fails.
    pub fn attempts_allowed(&self, default: u32) -> u32 {
        self.max_attempts.unwrap_or(default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn an_envelope_survives_the_round_trip() {
        let mut envelope = Envelope::bare("a", raw(r#"{"x":[1,2]}"#));
        envelope.labels = vec!["red".into()];
        envelope.not_before = Some(Stamp(1_000));
        let again = Envelope::parse("a", &envelope.to_bytes()).unwrap();
        assert_eq!(again.to_bytes(), envelope.to_bytes());
        assert_eq!(again.payload.get(), r#"{"x":[1,2]}"#);
    }

    #[test]
    fn any_other_json_is_a_bare_payload() {
        for text in [r#"{"url":"https://example.com"}"#, "3", "null", "[]"] {
            let envelope = Envelope::parse("a", text.as_bytes()).unwrap();
            assert_eq!(envelope.payload.get(), text);
            assert_eq!(envelope.priority, NORMAL_PRIORITY);
        }
    }

    #[test]
    fn damage_is_told_from_a_newer_version() {
        for text in [
            "",
            "{",
            "{\"dfq\":1}",
            "\u{fffd}x",
            r#"{"dfq":1,"id":"b","payload":1}"#,
        ] {
            assert!(matches!(
                Envelope::parse("a", text.as_bytes()),
                Err(Damage::Broken(_))
            ));
        }
        let newer = r#"{"dfq":2,"whatever":true}"#;
        assert_eq!(
            Envelope::parse("a", newer.as_bytes()).unwrap_err(),
            Damage::Newer(2)
        );
    }

    #[test]
    fn the_history_is_bounded() {
        let mut envelope = Envelope::bare("a", raw("1"));
        for attempt in 0..50 {
            envelope.remember(TaskError {
                at: Stamp(0),
                attempt,
                fence: 0,
                worker_id: None,
                kind: "error".into(),
                message: String::new(),
            });
        }
        assert_eq!(envelope.errors.len(), MAX_ERRORS);
        assert_eq!(envelope.errors.last().unwrap().attempt, 49);
    }
}
