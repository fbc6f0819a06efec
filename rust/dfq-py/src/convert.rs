//! Between Python's plain values and the core's structs.

use dfq_core::envelope::{Envelope, NORMAL_PRIORITY};
use dfq_core::filter::Filter;
use dfq_core::lease::Lease;
use dfq_core::listing::Entry;
use dfq_core::queue::{Claimed, Counts, NewTask, Record, SweepReport};
use dfq_core::time::Stamp;
use pyo3::exceptions::PyValueError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use serde_json::value::RawValue;

/// A task as Python hands it in. Times are milliseconds since 1970.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct TaskArguments {
    id: String,
    id_given: bool,
    payload: Vec<u8>,
    name: Option<String>,
    priority: i16,
    labels: Vec<String>,
    project: Option<String>,
    depends_on: Vec<String>,
    created_at: i64,
    not_before: Option<i64>,
    expires_at: Option<i64>,
    max_attempts: Option<u32>,
    retry: Option<Vec<u8>>,
    correlation_id: String,
}

fn raw(bytes: Vec<u8>) -> PyResult<Box<RawValue>> {
    let text = String::from_utf8(bytes).map_err(|e| PyValueError::new_err(e.to_string()))?;
    RawValue::from_string(text).map_err(|e| PyValueError::new_err(e.to_string()))
}

/// The task to store.
pub fn new_task(task: TaskArguments) -> PyResult<NewTask> {
    let mut envelope = Envelope::bare(&task.id, raw(task.payload)?);
    envelope.name = task.name;
    envelope.priority = task.priority;
    envelope.labels = task.labels;
    envelope.project = task.project;
    envelope.depends_on = task.depends_on;
    envelope.created_at = Some(Stamp(task.created_at));
    envelope.not_before = task.not_before.map(Stamp);
    envelope.expires_at = task.expires_at.map(Stamp);
    envelope.max_attempts = task.max_attempts;
    envelope.retry = task.retry.map(raw).transpose()?;
    envelope.correlation_id = task.correlation_id;
    Ok(NewTask {
        envelope,
        id_given: task.id_given,
    })
}

/// A filter as Python hands it in: project, labels, least and greatest priority, names.
pub type FilterArguments = (
    Option<String>,
    Vec<String>,
    Option<i16>,
    Option<i16>,
    Option<Vec<String>>,
);

/// The core's filter.
pub fn filter(filter: FilterArguments) -> Filter {
    let (project, labels, min_priority, max_priority, names) = filter;
    Filter {
        project,
        labels,
        min_priority,
        max_priority,
        names,
    }
}

fn seconds(stamp: Stamp) -> f64 {
    stamp.0 as f64 / 1000.0
}

/// A task with nothing but defaults, to be copied: most fields of most tasks stay as they are.
fn plain_task<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    static PLAIN: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let plain = PLAIN.get_or_try_init(py, || -> PyResult<Py<PyDict>> {
        let dict = PyDict::new(py);
        for name in ["id", "payload", "name"] {
            dict.set_item(name, py.None())?;
        }
        dict.set_item("priority", NORMAL_PRIORITY)?;
        dict.set_item("labels", PyTuple::empty(py))?;
        dict.set_item("project", py.None())?;
        dict.set_item("depends_on", PyTuple::empty(py))?;
        for name in [
            "created_at",
            "not_before",
            "expires_at",
            "max_attempts",
            "retry",
        ] {
            dict.set_item(name, py.None())?;
        }
        dict.set_item("correlation_id", py.None())?;
        dict.set_item("attempts", 0)?;
        dict.set_item("errors", PyTuple::empty(py))?;
        Ok(dict.unbind())
    })?;
    plain.bind(py).copy()
}

/// A task as Python's Task has it; payload and retry are JSON, errors are tuples.
fn task<'py>(py: Python<'py>, task: &Envelope) -> PyResult<Bound<'py, PyDict>> {
    let dict = plain_task(py)?;
    let raw = |raw: &RawValue| PyBytes::new(py, raw.get().as_bytes());
    dict.set_item(intern!(py, "id"), &task.id)?;
    dict.set_item(intern!(py, "payload"), raw(&task.payload))?;
    dict.set_item(intern!(py, "correlation_id"), &task.correlation_id)?;
    if let Some(name) = &task.name {
        dict.set_item(intern!(py, "name"), name)?;
    }
    if task.priority != NORMAL_PRIORITY {
        dict.set_item(intern!(py, "priority"), task.priority)?;
    }
    if !task.labels.is_empty() {
        dict.set_item(intern!(py, "labels"), PyTuple::new(py, &task.labels)?)?;
    }
    if let Some(project) = &task.project {
        dict.set_item(intern!(py, "project"), project)?;
    }
    if !task.depends_on.is_empty() {
        let depends_on = PyTuple::new(py, &task.depends_on)?;
        dict.set_item(intern!(py, "depends_on"), depends_on)?;
    }
    for (name, at) in [
        (intern!(py, "created_at"), task.created_at),
        (intern!(py, "not_before"), task.not_before),
        (intern!(py, "expires_at"), task.expires_at),
    ] {
        if let Some(at) = at {
            dict.set_item(name, seconds(at))?;
        }
    }
    if let Some(max_attempts) = task.max_attempts {
        dict.set_item(intern!(py, "max_attempts"), max_attempts)?;
    }
    if let Some(retry) = &task.retry {
        dict.set_item(intern!(py, "retry"), raw(retry))?;
    }
    if task.attempts > 0 {
        dict.set_item(intern!(py, "attempts"), task.attempts)?;
    }
    if !task.errors.is_empty() {
        let errors = task.errors.iter().map(|e| {
            let at = seconds(e.at);
            (at, e.attempt, e.fence, &e.worker_id, &e.kind, &e.message)
        });
        let errors = PyTuple::new(py, errors.collect::<Vec<_>>())?;
        dict.set_item(intern!(py, "errors"), errors)?;
    }
    Ok(dict)
}

/// The string that was asked for first, while the others are the same.
struct Same(PyOnceLock<Py<PyString>>);

impl Same {
    const fn new() -> Same {
        Same(PyOnceLock::new())
    }

    fn get<'py>(&self, py: Python<'py>, text: &str) -> PyResult<Bound<'py, PyString>> {
        let first = self.0.get_or_init(py, || PyString::new(py, text).unbind());
        let first = first.bind(py);
        if first.to_str()? == text {
            return Ok(first.clone());
        }
        Ok(PyString::new(py, text))
    }
}

/// A lease as Python's Lease has it, without its task.
pub fn lease<'py>(py: Python<'py>, lease: &Lease) -> PyResult<Bound<'py, PyDict>> {
    // Most leases that a process sees are its own.
    static WORKER: Same = Same::new();
    static HOST: Same = Same::new();
    static BOOT: Same = Same::new();
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "worker_id"), WORKER.get(py, &lease.worker_id)?)?;
    dict.set_item(intern!(py, "lease_id"), &lease.lease_id)?;
    dict.set_item(intern!(py, "fence"), lease.fence)?;
    dict.set_item(intern!(py, "attempt"), lease.attempt)?;
    dict.set_item(intern!(py, "host"), HOST.get(py, &lease.host)?)?;
    dict.set_item(intern!(py, "boot_id"), BOOT.get(py, &lease.boot_id)?)?;
    dict.set_item(intern!(py, "pid"), lease.pid)?;
    dict.set_item(intern!(py, "acquired_at"), seconds(lease.acquired_at))?;
    dict.set_item(intern!(py, "heartbeat_at"), seconds(lease.heartbeat_at))?;
    dict.set_item(intern!(py, "expires_at"), seconds(lease.expires_at))?;
    Ok(dict)
}

/// A claimed task and its lease.
pub fn claimed<'py>(py: Python<'py>, one: &Claimed) -> PyResult<Bound<'py, PyTuple>> {
    PyTuple::new(py, [task(py, &one.task)?, lease(py, &one.lease)?])
}

/// All about one task.
pub fn record<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("state", record.state)?;
    dict.set_item("task", task(py, &record.task)?)?;
    dict.set_item(
        "lease",
        record.lease.as_ref().map(|l| lease(py, l)).transpose()?,
    )?;
    dict.set_item(
        "result",
        record.result.as_ref().map(|r| PyBytes::new(py, r)),
    )?;
    dict.set_item(
        "finished_at",
        record.finished_ms.map(|ms| ms as f64 / 1000.0),
    )?;
    let blocked_by = PyDict::new(py);
    for (dependency, state) in &record.blocked_by {
        blocked_by.set_item(dependency, state)?;
    }
    dict.set_item("blocked_by", blocked_by)?;
    Ok(dict)
}

/// Counts, with the moment of the oldest ready task in milliseconds.
pub fn counts<'py>(py: Python<'py>, counts: &Counts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("ready", counts.ready)?;
    dict.set_item("delayed", counts.delayed)?;
    dict.set_item("blocked", counts.blocked)?;
    dict.set_item("stuck", counts.stuck)?;
    dict.set_item("leased", counts.leased)?;
    dict.set_item("completed", counts.completed)?;
    dict.set_item("failed", counts.failed)?;
    dict.set_item("quarantined", counts.quarantined)?;
    dict.set_item("by_project", &counts.by_project)?;
    dict.set_item("by_label", &counts.by_label)?;
    dict.set_item("oldest_ready_ms", counts.oldest_ready_ms)?;
    Ok(dict)
}

/// What a sweep did.
pub fn sweep_report<'py>(py: Python<'py>, report: &SweepReport) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("expired_leases", report.expired_leases)?;
    dict.set_item("failed", report.failed)?;
    dict.set_item("temporary_removed", report.temporary_removed)?;
    dict.set_item("quarantined", report.quarantined)?;
    dict.set_item("archived", report.archived)?;
    dict.set_item("dropped", report.dropped)?;
    Ok(dict)
}

/// The objects of a page: key, ETag, whole seconds since 1970 (a read knows no more), size.
pub fn entries<'py>(py: Python<'py>, entries: &[Entry]) -> PyResult<Bound<'py, PyList>> {
    let rows = entries.iter().map(|entry| {
        let modified = entry.modified_ms.div_euclid(1000) as f64;
        (&entry.key, &entry.etag, modified, entry.size)
    });
    PyList::new(py, rows.collect::<Vec<_>>())
}
