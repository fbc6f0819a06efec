//! How tasks are laid out in the folder: what queue.json states, or what the folder looks like.

use std::os::fd::BorrowedFd;

use rustix::fs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Kind, Result};
use crate::id;
use crate::sys::{self, Content};

/// How task directories are laid out below an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    /// `<area>/<shard>/<id>/`
    Sharded,
    /// `<area>/<id>/`, as the first paper has it.
    Flat,
}

/// The layout keys of queue.json; the policy keys belong to the caller.
#[derive(Deserialize)]
struct LayoutKeys {
    #[serde(default)]
    dfq: Value,
    #[serde(default)]
    layout: Value,
}

/// The layout that queue.json states, if it does.
pub fn stated(root: BorrowedFd<'_>, path: &str) -> Result<Option<Layout>> {
    let wrong = |what: String| Error::new(Kind::Invalid, format!("{path}/queue.json: {what}"));
    let content = match sys::read_file(root, "queue.json", 1 << 20) {
        Ok(Content::Whole(content)) => content,
        Ok(Content::Missing) => return Ok(None),
        Ok(Content::Foreign(what)) => return Err(wrong(what.into_owned())),
        Err(errno) => return Err(Error::io("read", &format!("{path}/queue.json"), errno)),
    };
    let keys: LayoutKeys = serde_json::from_slice(&content).map_err(|e| {
        wrong(format!(
            "not JSON ({e}); mend it, or delete it for the defaults"
        ))
    })?;
    let version = match &keys.dfq {
        Value::Null => None,
        value => Some(value.as_u64().ok_or_else(|| {
            wrong(format!(
                "dfq is {value}; it is the layout's version, a whole number"
            ))
        })?),
    };
    if let Some(version) = version.filter(|v| *v > u64::from(crate::envelope::VERSION)) {
        return Err(Error::new(
            Kind::LayoutTooNew,
            format!(
                "{path} has layout {version}; this dfq knows layout {} at most. Upgrade dfq",
                crate::envelope::VERSION
            ),
        ));
    }
    match &keys.layout {
        Value::Null => Ok(None),
        Value::String(name) if name == "sharded" => Ok(Some(Layout::Sharded)),
        Value::String(name) if name == "flat" => Ok(Some(Layout::Flat)),
        other => Err(wrong(format!(
            "layout is {other}; it is \"sharded\" or \"flat\""
        ))),
    }
}

/// A folder whose layout nobody stated is flat if tasks stand directly below pending/.
pub fn guess(root: BorrowedFd<'_>, path: &str) -> Result<Layout> {
    let failed = |errno| Error::io("read", &format!("{path}/pending"), errno);
    let pending = sys::open_dir(root, "pending").map_err(failed)?;
    let (mut shards, mut others) = (0, 0);
    sys::each_entry(&pending, |name, kind| {
        if id::shard_from_name(name).is_some() {
            shards += 1;
        } else if kind == fs::FileType::Directory && id::is_valid(name) {
            others += 1;
        }
    })
    .map_err(failed)?;
    Ok(if others > 0 && shards == 0 {
        Layout::Flat
    } else {
        Layout::Sharded
    })
}
