//! Reading and writing USV.

use dfq_core::error::Result as CoreResult;
use dfq_core::usv::check::{self, Found};
use dfq_core::usv::reader::{Next, Reader};
use dfq_core::usv::writer::{self, Writer};
use dfq_core::usv::{visible as symbols, Ends};
use parking_lot::Mutex;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict};

use crate::raise;

fn ends(visible: bool) -> Ends {
    if visible {
        Ends::Visible
    } else {
        Ends::Any
    }
}

/// Rows that were read, and the error that ended it.
type Lot = (Vec<Vec<String>>, Option<String>);

/// A reader, and what it found wrong but did not say yet.
struct Rows {
    reader: Reader,
    problem: Option<String>,
}

impl Rows {
    fn of(reader: Reader) -> Mutex<Rows> {
        let problem = None;
        Mutex::new(Rows { reader, problem })
    }

    /// Rows up to the next bad one. A bad one is an error of its own; reading goes on after it.
    fn read(&mut self, limit: usize) -> CoreResult<Lot> {
        let mut rows = Vec::new();
        if let Some(problem) = self.problem.take() {
            return Ok((rows, Some(problem)));
        }
        while rows.len() < limit {
            match self.reader.next_row()? {
                Next::Row(row) => rows.push(row),
                Next::Bad(problem) => {
                    let problem = format!("record {} is {problem}", self.reader.records());
                    if rows.is_empty() {
                        return Ok((rows, Some(problem)));
                    }
                    self.problem = Some(problem);
                    break;
                }
                Next::More | Next::End => break,
            }
        }
        Ok((rows, None))
    }

    /// The number of the last record that was told about.
    fn number(&self) -> u64 {
        self.reader.records() - u64::from(self.problem.is_some())
    }
}

fn lot(py: Python<'_>, rows: &Mutex<Rows>, limit: usize) -> PyResult<Vec<Vec<String>>> {
    match py.detach(|| rows.lock().read(limit)).map_err(raise)? {
        (_, Some(problem)) => Err(PyValueError::new_err(problem)),
        (rows, None) => Ok(rows),
    }
}

/// The rows of a file, read as a stream.
#[pyclass(frozen, module = "dfq._core")]
pub struct UsvReader {
    rows: Mutex<Rows>,
}

#[pymethods]
impl UsvReader {
    #[new]
    #[pyo3(signature = (path, *, visible=false, max_record_bytes=16_777_216))]
    fn new(path: &str, visible: bool, max_record_bytes: usize) -> PyResult<Self> {
        let reader = Reader::open(path, ends(visible), max_record_bytes).map_err(raise)?;
        Ok(UsvReader {
            rows: Rows::of(reader),
        })
    }

    /// At most `limit` rows; none at the end. A bad record is a ValueError; the next call goes on.
    fn read(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<Vec<String>>> {
        lot(py, &self.rows, limit)
    }

    #[getter]
    fn records_read(&self) -> u64 {
        self.rows.lock().number()
    }

    #[getter]
    fn bytes_read(&self) -> u64 {
        self.rows.lock().reader.bytes_read()
    }

    #[getter]
    fn size(&self) -> u64 {
        self.rows.lock().reader.size()
    }
}

/// The rows of bytes that are fed in.
#[pyclass(frozen, module = "dfq._core")]
pub struct UsvFeed {
    rows: Mutex<Rows>,
}

#[pymethods]
impl UsvFeed {
    #[new]
    #[pyo3(signature = (*, visible=false, max_record_bytes=16_777_216))]
    fn new(visible: bool, max_record_bytes: usize) -> Self {
        UsvFeed {
            rows: Rows::of(Reader::fed(ends(visible), max_record_bytes)),
        }
    }

    /// Puts bytes in; none: there are no more. Read all rows before putting in more.
    fn feed(&self, py: Python<'_>, data: &[u8]) {
        py.detach(|| {
            let mut rows = self.rows.lock();
            match data {
                [] => rows.reader.finish(),
                data => rows.reader.feed(data),
            }
        });
    }

    /// Like that of UsvReader; no rows: feed more.
    fn read(&self, py: Python<'_>, limit: usize) -> PyResult<Vec<Vec<String>>> {
        lot(py, &self.rows, limit)
    }

    #[getter]
    fn records_read(&self) -> u64 {
        self.rows.lock().number()
    }
}

/// A new file, written as a stream.
#[pyclass(frozen, module = "dfq._core")]
pub struct UsvWriter {
    writer: Mutex<Option<Writer>>,
}

#[pymethods]
impl UsvWriter {
    #[new]
    fn new(path: &str) -> PyResult<Self> {
        let writer = Writer::create(path).map_err(raise)?;
        Ok(UsvWriter {
            writer: Mutex::new(Some(writer)),
        })
    }

    fn write(&self, py: Python<'_>, rows: Vec<Vec<PyBackedStr>>) -> PyResult<()> {
        py.detach(|| {
            let mut writer = self.writer.lock();
            let Some(writer) = writer.as_mut() else {
                return Ok(Err(closed()));
            };
            for row in &rows {
                writer.write(row.iter().map(|field| field.as_bytes()))?;
            }
            Ok(Ok(()))
        })
        .map_err(raise)?
    }

    /// Ends the file; returns how many records and bytes it has, and its sha256.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let writer = self.writer.lock().take().ok_or_else(closed)?;
        let (records, written) = py.detach(|| writer.finish()).map_err(raise)?;
        let dict = PyDict::new(py);
        dict.set_item("records", records)?;
        dict.set_item("bytes", written.bytes)?;
        dict.set_item("sha256", written.sha256)?;
        Ok(dict)
    }
}

fn closed() -> PyErr {
    PyValueError::new_err("the file is closed")
}

/// The rows of a small body. A ValueError names the record that can't be read.
#[pyfunction]
#[pyo3(signature = (body, visible=false))]
pub fn split_usv(py: Python<'_>, body: &[u8], visible: bool) -> PyResult<Vec<Vec<String>>> {
    py.detach(|| check::split(body, ends(visible)))
        .map_err(PyValueError::new_err)
}

/// Rows as canonical bytes.
#[pyfunction]
pub fn join_usv<'py>(
    py: Python<'py>,
    rows: Vec<Vec<PyBackedStr>>,
) -> PyResult<Bound<'py, PyBytes>> {
    if let Some(number) = rows.iter().position(Vec::is_empty) {
        let message = format!("record {} has no field; give it one", number + 1);
        return Err(PyValueError::new_err(message));
    }
    let bytes = py.detach(|| {
        let mut bytes = Vec::new();
        for row in &rows {
            writer::record_into(&mut bytes, row.iter().map(|field| field.as_bytes()));
        }
        bytes
    });
    Ok(PyBytes::new(py, &bytes))
}

/// Looks a file through without making rows of it.
#[pyfunction]
#[pyo3(signature = (path, columns=None, visible=false, max_record_bytes=16_777_216))]
pub fn check_usv<'py>(
    py: Python<'py>,
    path: &str,
    columns: Option<usize>,
    visible: bool,
    max_record_bytes: usize,
) -> PyResult<Bound<'py, PyDict>> {
    let found = py
        .detach(|| check::check(path, columns, ends(visible), max_record_bytes))
        .map_err(raise)?;
    told(py, found)
}

fn told(py: Python<'_>, found: Found) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("records", found.records)?;
    dict.set_item("bytes", found.bytes)?;
    dict.set_item("least_fields", found.least_fields)?;
    dict.set_item("most_fields", found.most_fields)?;
    dict.set_item("short", found.short)?;
    dict.set_item("bad", found.bad)?;
    dict.set_item("problems", found.problems)?;
    dict.set_item("unended", found.unended)?;
    Ok(dict)
}

/// How many records a file has.
#[pyfunction]
#[pyo3(signature = (path, visible=false))]
pub fn count_usv(py: Python<'_>, path: &str, visible: bool) -> PyResult<u64> {
    py.detach(|| check::count(path, ends(visible)))
        .map_err(raise)
}

/// Whether the beginning of a file is in the form with symbols.
#[pyfunction]
pub fn usv_is_visible(beginning: &[u8]) -> bool {
    symbols::is_likely(beginning)
}
