//! The merge of USV files into shards, and what goes with it.

use dfq_core::merge::find::{self, Place};
use dfq_core::merge::key::KeyRule;
use dfq_core::merge::{self, Body, Report, Rules};
use dfq_core::{id, iso};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::raise;

/// The rules as Python hands them in.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct RuleArguments {
    columns: usize,
    key: usize,
    updated_at: usize,
    deleted_at: usize,
    key_rule: String,
    shard: Option<String>,
    drop_deleted_before_ns: Option<i128>,
    now_ns: i128,
    max_record_bytes: usize,
    memory_bytes: usize,
    scratch: String,
}

/// An inbox entry as Python hands it in.
pub enum BodyArgument {
    Bytes(PyBackedBytes),
    Path(PyBackedStr),
}

impl<'py> FromPyObject<'_, 'py> for BodyArgument {
    type Error = PyErr;

    /// By its type: an attempt that fails makes an error, which is dear for thousands of entries.
    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if given.is_instance_of::<PyString>() {
            Ok(BodyArgument::Path(given.extract()?))
        } else {
            Ok(BodyArgument::Bytes(given.extract()?))
        }
    }
}

impl BodyArgument {
    fn body(&self) -> Body<'_> {
        match self {
            BodyArgument::Bytes(bytes) => Body::Bytes(bytes),
            BodyArgument::Path(path) => Body::Path(path),
        }
    }
}

fn key_rule(name: &str) -> PyResult<KeyRule> {
    KeyRule::from_name(name).ok_or_else(|| {
        PyValueError::new_err(format!("no key rule {name:?}; use exact, lower or domain"))
    })
}

fn rules(given: RuleArguments) -> PyResult<Rules> {
    let shard = |name: String| {
        id::shard_from_name(name.as_bytes())
            .ok_or_else(|| PyValueError::new_err(format!("no shard {name:?}; use 00 to ff")))
    };
    let rules = Rules {
        columns: given.columns,
        key: given.key,
        updated_at: given.updated_at,
        deleted_at: given.deleted_at,
        key_rule: key_rule(&given.key_rule)?,
        shard: given.shard.map(shard).transpose()?,
        drop_deleted_before_ns: given.drop_deleted_before_ns,
        now_ns: given.now_ns,
        max_record_bytes: given.max_record_bytes,
        memory_bytes: given.memory_bytes,
        scratch: given.scratch,
    };
    match rules.problem() {
        Some(problem) => Err(PyValueError::new_err(problem)),
        None => Ok(rules),
    }
}

/// Merges an inbox into a shard; writes the new shard and a file of what was rejected.
#[pyfunction]
pub fn merge_usv<'py>(
    py: Python<'py>,
    shard: Option<&str>,
    inbox: Vec<(String, BodyArgument)>,
    output: &str,
    rejects: &str,
    rules: RuleArguments,
) -> PyResult<Bound<'py, PyDict>> {
    let rules = self::rules(rules)?;
    let report = py
        .detach(|| {
            let entries = inbox.iter().map(|(name, body)| (name.clone(), body.body()));
            let inbox: Vec<(String, Body<'_>)> = entries.collect();
            merge::merge(shard, &inbox, output, rejects, &rules)
        })
        .map_err(raise)?;
    told(py, report)
}

fn told(py: Python<'_>, report: Report) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("records", report.records)?;
    dict.set_item("tombstones", report.tombstones)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("sha256", report.sha256)?;
    dict.set_item("newest_ns", report.newest_ns)?;
    dict.set_item("changed", report.changed)?;
    dict.set_item("taken", report.taken)?;
    dict.set_item("superseded", report.superseded)?;
    dict.set_item("normalised", report.normalised)?;
    dict.set_item("padded", report.padded)?;
    dict.set_item("dropped", report.dropped)?;
    dict.set_item("future", report.future)?;
    let rejects = report.rejects.into_iter().map(|reject| {
        let (kind, at) = (reject.kind.name(), (reject.offset, reject.length));
        (reject.name, reject.record, kind, reject.message, at.0, at.1)
    });
    dict.set_item("rejects", rejects.collect::<Vec<_>>())?;
    Ok(dict)
}

/// The raw record of a key in a sorted shard, without its line feed.
#[pyfunction]
pub fn find_usv<'py>(
    py: Python<'py>,
    path: &str,
    key: &str,
    columns: usize,
    key_column: usize,
    key_rule: &str,
) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let place = Place {
        path,
        columns,
        key: key_column,
        key_rule: self::key_rule(key_rule)?,
    };
    let found = py.detach(|| find::find(&place, key)).map_err(raise)?;
    Ok(found.map(|record| PyBytes::new(py, &record)))
}

/// The key that `key` is kept under.
#[pyfunction]
pub fn normal_key(key: &str, rule: &str) -> PyResult<String> {
    Ok(key_rule(rule)?.normal(key).into_owned())
}

/// Nanoseconds since 1970 of an ISO 8601 time; None if it is none.
#[pyfunction]
pub fn parse_time_ns(text: &str) -> Option<i128> {
    iso::parse_ns(text.as_bytes())
}
