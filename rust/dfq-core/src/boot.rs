//! boot.json: which boot of the machine this is, and the layout.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::layout::Layout;
use crate::sys::{self, Content};

/// The contents of boot.json.
#[derive(Clone, Serialize, Deserialize)]
pub struct Boot {
    /// Which boot of the machine.
    pub boot_id: String,
    /// How many boots the queue has seen before.
    pub epoch: u64,
    /// The layout, fixed at the first use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<Layout>,
}

impl Boot {
    /// What the folder says; None if it says nothing, or nothing readable.
    pub fn read(root: BorrowedFd<'_>) -> Option<Boot> {
        match sys::read_file(root, "boot.json", 4096) {
            Ok(Content::Whole(content)) => serde_json::from_slice(&content).ok(),
            _ => None,
        }
    }

    /// Puts it into the folder, durably.
    pub fn write(&self, handle: &OwnedFd) -> rustix::io::Result<()> {
        let root = handle.as_fd();
        let bytes = serde_json::to_vec(self).unwrap_or_default();
        match fs::unlinkat(root, "tmp/boot.json", fs::AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let file = sys::create_exclusive(root, "tmp/boot.json")?;
        sys::write_all(&file, &bytes)?;
        sys::sync(&file)?;
        fs::renameat(root, "tmp/boot.json", root, "boot.json")?;
        sys::sync(handle)
    }
}
