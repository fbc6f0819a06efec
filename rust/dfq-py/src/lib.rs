//! Python bindings of the file queue. Each method converts, lets go of the GIL, calls and maps
//! the error; nothing else happens here.

mod convert;
mod merge;
mod usv;

use dfq_core::error::Error;
use dfq_core::queue::{self, ClaimRequest, Outcome, Pushed, Retention, Settings};
use dfq_core::root::Area;
use dfq_core::time::{Now, Stamp};
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

pyo3::create_exception!(
    dfq._core,
    CoreError,
    PyException,
    "An error of the core: args are its kind and its message."
);

pub(crate) fn raise(error: Error) -> PyErr {
    CoreError::new_err((error.kind.name(), error.message))
}

fn area(name: &str) -> PyResult<Area> {
    Area::from_name(name).ok_or_else(|| PyValueError::new_err(format!("no area {name:?}")))
}

/// A moment as Python hands it in: wall and boot time in milliseconds.
type Moment = (i64, i64);

fn now(moment: Moment) -> Now {
    Now {
        wall_ms: moment.0,
        boot_ms: moment.1,
    }
}

/// The file queue in one folder.
#[pyclass(frozen, module = "dfq._core")]
struct FileQueue {
    core: queue::FileQueue,
}

impl FileQueue {
    fn told(&self, error: Error) -> PyErr {
        raise(self.core.explain(error))
    }
}

#[pymethods]
impl FileQueue {
    #[new]
    fn new(
        py: Python<'_>,
        path: &str,
        max_attempts: u32,
        max_file_bytes: usize,
        seed: u128,
    ) -> PyResult<Self> {
        let settings = Settings {
            max_attempts,
            max_file_bytes,
        };
        py.detach(|| queue::FileQueue::open(path, settings, seed))
            .map(|core| FileQueue { core })
            .map_err(raise)
    }

    #[getter]
    fn is_flat(&self) -> bool {
        self.core.is_flat()
    }

    #[getter]
    fn is_network(&self) -> bool {
        self.core.is_network()
    }

    #[getter]
    fn is_watched(&self) -> PyResult<bool> {
        self.core.is_watched().map_err(|e| self.told(e))
    }

    /// Returns, for each task, None if it was stored, or the area where its id is already.
    fn push(
        &self,
        py: Python<'_>,
        tasks: Vec<convert::TaskArguments>,
    ) -> PyResult<Vec<Option<&'static str>>> {
        let tasks = tasks
            .into_iter()
            .map(convert::new_task)
            .collect::<PyResult<Vec<_>>>()?;
        let pushed = py
            .detach(|| self.core.push(&tasks))
            .map_err(|e| self.told(e))?;
        Ok(pushed
            .into_iter()
            .map(|one| match one {
                Pushed::Created => None,
                Pushed::Exists(area) => Some(area.name()),
            })
            .collect())
    }

    #[allow(clippy::too_many_arguments)]
    fn claim<'py>(
        &self,
        py: Python<'py>,
        worker_id: String,
        limit: usize,
        lease_ms: i64,
        filter: Option<convert::FilterArguments>,
        moment: Moment,
    ) -> PyResult<Bound<'py, PyList>> {
        let filter = filter.map(convert::filter).unwrap_or_default();
        let request = ClaimRequest {
            worker_id,
            limit,
            lease_ms,
            filter,
        };
        let claimed = py
            .detach(|| self.core.claim(&request, now(moment)))
            .map_err(|e| self.told(e))?;
        let list = PyList::empty(py);
        for one in claimed {
            list.append(convert::claimed(py, &one)?)?;
        }
        Ok(list)
    }

    fn heartbeat<'py>(
        &self,
        py: Python<'py>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        lease_ms: i64,
        moment: Moment,
    ) -> PyResult<Bound<'py, PyDict>> {
        let lease = py
            .detach(|| {
                self.core
                    .heartbeat(task_id, lease_id, fence, lease_ms, now(moment))
            })
            .map_err(|e| self.told(e))?;
        convert::lease(py, &lease)
    }

    fn ack(
        &self,
        py: Python<'_>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        result: Option<&[u8]>,
        wall_ms: i64,
    ) -> PyResult<()> {
        let at = Stamp(wall_ms);
        py.detach(|| self.core.ack(task_id, lease_id, fence, result, at))
            .map_err(|e| self.told(e))
    }

    /// True: the task will be delivered again. False: it failed.
    #[allow(clippy::too_many_arguments)]
    fn nack(
        &self,
        py: Python<'_>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        kind: &str,
        message: &str,
        delay_ms: i64,
        moment: Moment,
    ) -> PyResult<bool> {
        let now = now(moment);
        py.detach(|| {
            self.core
                .nack(task_id, lease_id, fence, kind, message, delay_ms, now)
        })
        .map(|outcome| outcome == Outcome::Retry)
        .map_err(|e| self.told(e))
    }

    fn release(
        &self,
        py: Python<'_>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        delay_ms: i64,
        moment: Moment,
    ) -> PyResult<()> {
        py.detach(|| {
            self.core
                .release(task_id, lease_id, fence, delay_ms, now(moment))
        })
        .map_err(|e| self.told(e))
    }

    fn bury(
        &self,
        py: Python<'_>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        reason: &str,
        moment: Moment,
    ) -> PyResult<()> {
        py.detach(|| {
            self.core
                .bury(task_id, lease_id, fence, reason, now(moment))
        })
        .map_err(|e| self.told(e))
    }

    fn save_state(
        &self,
        py: Python<'_>,
        task_id: &str,
        lease_id: &str,
        fence: u64,
        state: &[u8],
    ) -> PyResult<()> {
        py.detach(|| self.core.save_state(task_id, lease_id, fence, state))
            .map_err(|e| self.told(e))
    }

    fn load_state<'py>(
        &self,
        py: Python<'py>,
        task_id: &str,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let state = py
            .detach(|| self.core.load_state(task_id))
            .map_err(|e| self.told(e))?;
        Ok(state.map(|bytes| PyBytes::new(py, &bytes)))
    }

    /// Moves a pending task to failed.
    fn fail(
        &self,
        py: Python<'_>,
        task_id: &str,
        reason: &str,
        kind: &str,
        held: bool,
        moment: Moment,
    ) -> PyResult<()> {
        py.detach(|| self.core.fail(task_id, reason, kind, held, now(moment)))
            .map_err(|e| self.told(e))
    }

    fn requeue(&self, py: Python<'_>, task_id: &str) -> PyResult<()> {
        py.detach(|| self.core.requeue(task_id))
            .map_err(|e| self.told(e))
    }

    /// Deletes a task. `held`: a pending one that is leased, instead of one that is not.
    fn remove(&self, py: Python<'_>, area_name: &str, task_id: &str, held: bool) -> PyResult<bool> {
        let area = area(area_name)?;
        py.detach(|| self.core.remove(area, task_id, held))
            .map_err(|e| self.told(e))
    }

    /// Deletes archived days that ended before a moment in milliseconds, or all.
    fn purge_archive(&self, py: Python<'_>, before_ms: Option<i64>) -> PyResult<u64> {
        py.detach(|| self.core.purge_archive(before_ms))
            .map_err(|e| self.told(e))
    }

    /// Sets a pending task aside.
    fn quarantine(&self, py: Python<'_>, task_id: &str, reason: &str) -> PyResult<()> {
        py.detach(|| self.core.quarantine_task(task_id, reason))
            .map_err(|e| self.told(e))
    }

    fn quarantined(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        py.detach(|| self.core.quarantined())
            .map_err(|e| self.told(e))
    }

    fn get<'py>(
        &self,
        py: Python<'py>,
        task_id: &str,
        moment: Moment,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let record = py
            .detach(|| self.core.get(task_id, now(moment)))
            .map_err(|e| self.told(e))?;
        record
            .map(|record| convert::record(py, &record))
            .transpose()
    }

    /// The ids in one of the 256 shards of an area.
    fn list(&self, py: Python<'_>, area_name: &str, shard: u8) -> PyResult<Vec<String>> {
        let area = area(area_name)?;
        py.detach(|| self.core.list(area, shard))
            .map_err(|e| self.told(e))
    }

    fn stats<'py>(&self, py: Python<'py>, moment: Moment) -> PyResult<Bound<'py, PyDict>> {
        let counts = py
            .detach(|| self.core.stats(now(moment)))
            .map_err(|e| self.told(e))?;
        convert::counts(py, &counts)
    }

    /// `retention` is keep, archive or drop, with the age in milliseconds.
    fn sweep<'py>(
        &self,
        py: Python<'py>,
        retention: &str,
        age_ms: i64,
        moment: Moment,
    ) -> PyResult<Bound<'py, PyDict>> {
        let retention = match retention {
            "keep" => Retention::Keep,
            "archive" => Retention::Archive(age_ms),
            "drop" => Retention::Drop(age_ms),
            other => return Err(PyValueError::new_err(format!("no retention {other:?}"))),
        };
        let report = py
            .detach(|| self.core.sweep(retention, now(moment)))
            .map_err(|e| self.told(e))?;
        convert::sweep_report(py, &report)
    }

    #[getter]
    fn is_paused(&self, py: Python<'_>) -> PyResult<bool> {
        py.detach(|| self.core.is_paused())
            .map_err(|e| self.told(e))
    }

    fn pause(&self, py: Python<'_>, note: &[u8]) -> PyResult<()> {
        py.detach(|| self.core.pause(note))
            .map_err(|e| self.told(e))
    }

    fn resume(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.core.resume()).map_err(|e| self.told(e))
    }

    fn wait(
        &self,
        py: Python<'_>,
        timeout_ms: i64,
        poll_ms: i64,
        moment: Moment,
    ) -> PyResult<bool> {
        py.detach(|| self.core.wait(timeout_ms, poll_ms, now(moment)))
            .map_err(|e| self.told(e))
    }

    fn interrupt(&self) {
        self.core.interrupt();
    }
}

/// The shard of an id: two hex digits.
#[pyfunction]
fn shard_of(task_id: &str) -> &'static str {
    dfq_core::id::shard_name(dfq_core::id::shard_of(task_id))
}

/// One page of a bucket's listing, its keys without the prefix.
#[pyfunction]
#[pyo3(signature = (body, prefix=""))]
fn parse_listing<'py>(
    py: Python<'py>,
    body: &[u8],
    prefix: &str,
) -> PyResult<(Bound<'py, PyList>, bool, Option<String>)> {
    let listing = py
        .detach(|| dfq_core::listing::parse(body, prefix))
        .map_err(PyValueError::new_err)?;
    let entries = convert::entries(py, &listing.entries)?;
    Ok((entries, listing.is_truncated, listing.next_token))
}

/// The core of dfq.
#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<FileQueue>()?;
    module.add("CoreError", module.py().get_type::<CoreError>())?;
    module.add_function(wrap_pyfunction!(shard_of, module)?)?;
    module.add_function(wrap_pyfunction!(parse_listing, module)?)?;
    module.add_class::<usv::UsvReader>()?;
    module.add_class::<usv::UsvFeed>()?;
    module.add_class::<usv::UsvWriter>()?;
    module.add_function(wrap_pyfunction!(usv::split_usv, module)?)?;
    module.add_function(wrap_pyfunction!(usv::join_usv, module)?)?;
    module.add_function(wrap_pyfunction!(usv::check_usv, module)?)?;
    module.add_function(wrap_pyfunction!(usv::count_usv, module)?)?;
    module.add_function(wrap_pyfunction!(usv::usv_is_visible, module)?)?;
    module.add_function(wrap_pyfunction!(merge::merge_usv, module)?)?;
    module.add_function(wrap_pyfunction!(merge::find_usv, module)?)?;
    module.add_function(wrap_pyfunction!(merge::normal_key, module)?)?;
    module.add_function(wrap_pyfunction!(merge::parse_time_ns, module)?)?;
    Ok(())
}
