"""What `dfq doctor` looks at in a folder."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from dfq.engines.findings import NAMED, task_findings
from dfq.record import Finding

if TYPE_CHECKING:
    from dfq.queue import Queue

#: Below this much free space a warning is due.
_LITTLE_SPACE_BYTES = 64 * 1024 * 1024


def examine(
    queue: Queue, path: str, network: bool, quarantined: list[tuple[str, str]]
) -> list[Finding]:
    """Look at the folder, the disk below it, and the tasks in it."""
    # First: it says by name if the folder is gone.
    tasks = task_findings(queue)
    findings = [*_folder(path, network), *_disk(path), *tasks]
    for where, why in quarantined[:NAMED]:
        advice = f"Mend it and move it back, or delete it from {path}/quarantine."
        findings.append(Finding("warning", where, f"set aside: {why}", advice))
    if len(quarantined) > NAMED:
        more = f"{len(quarantined) - NAMED} more things are set aside"
        findings.append(Finding("warning", f"{path}/quarantine", more))
    if all(finding.level == "ok" for finding in findings):
        findings.append(Finding("ok", path, "nothing is wrong"))
    return findings


def _folder(path: str, network: bool) -> list[Finding]:
    findings = []
    status = os.stat(path)
    if stat.S_IMODE(status.st_mode) & 0o022:
        advice = f"chmod go-w {path}"
        findings.append(Finding("warning", path, "others can write to the folder", advice))
    if not os.access(path, os.W_OK | os.X_OK):
        advice = "Check its owner and permissions."
        findings.append(Finding("error", path, "the folder can't be written to", advice))
    findings += _owners(path, status.st_uid)
    if network:
        message = "the folder is on a network file system: workers poll instead of being woken"
        findings.append(Finding("ok", path, message))
    return findings


def _owners(path: str, owner: int) -> list[Finding]:
    findings = []
    for area in ("pending", "completed", "failed", "tmp", "quarantine"):
        folders = [f"{path}/{area}"]
        if area in ("pending", "completed", "failed"):
            with os.scandir(folders[0]) as entries:
                folders += [e.path for e in entries if len(e.name) == 2 and not e.is_symlink()]
        for folder in folders:
            if os.lstat(folder).st_uid not in (owner, os.geteuid()):
                message = "belongs to another user than the queue"
                findings.append(Finding("warning", folder, message, f"chown it to uid {owner}"))
    return findings


def _disk(path: str) -> list[Finding]:
    disk = os.statvfs(path)
    findings = []
    if disk.f_flag & os.ST_RDONLY:
        findings.append(Finding("error", path, "the disk is read-only", "Remount it, check it."))
    free = disk.f_bavail * disk.f_frsize
    if free < _LITTLE_SPACE_BYTES:
        message = f"only {free // 1_048_576} MB are free on the disk"
        findings.append(Finding("warning", path, message, "Free some space, or purge."))
    if disk.f_files and not disk.f_favail:
        message = "the disk has no inodes left: no file can be made"
        findings.append(Finding("error", path, message, "Delete small files, or purge."))
    return findings
