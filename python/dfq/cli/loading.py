"""Streams rows into a queue, a lot at a time, so that memory stays bounded and syncs are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dfq.cli.output import counted, note
from dfq.cli.rows import BadRow, Row
from dfq.errors import DfqError
from dfq.payload import JSON

if TYPE_CHECKING:
    from dfq.queue import Queue
    from dfq.task import NewTask

#: Tasks that share one sync.
LOT = 1_000
#: Bytes of payload after which a lot is full early.
LOT_BYTES = 16 << 20


@dataclass
class Loaded:
    """What became of the rows so far."""

    pushed: int = 0
    existing: int = 0
    bad: int = 0
    #: The row that ended the load, if one did.
    stopped_at: BadRow | None = None


def load(
    queue: Queue,
    rows: Iterator[Row | BadRow],
    *,
    options: dict[str, Any],
    id_field: str | None,
    skip_bad: bool,
    on_bad: Callable[[BadRow], None],
    on_lot: Callable[[Loaded], None],
) -> Loaded:
    """Push every good row; the first bad one ends it unless ``skip_bad``.

    What stands before the bad row is pushed in any case, so one knows where to go on.
    """
    loaded = Loaded()
    lot: list[NewTask] = []
    size = 0
    for row in rows:
        checked = row if isinstance(row, BadRow) else _checked(queue, row, options, id_field)
        if isinstance(checked, BadRow):
            loaded.bad += 1
            on_bad(checked)
            if skip_bad:
                continue
            loaded.stopped_at = checked
            break
        lot.append(checked)
        size += len(checked.payload)
        if len(lot) >= LOT or size >= LOT_BYTES:
            _push(queue, lot, loaded, on_lot)
            lot, size = [], 0
    _push(queue, lot, loaded, on_lot)
    return loaded


def _push(
    queue: Queue, lot: list[NewTask], loaded: Loaded, on_lot: Callable[[Loaded], None]
) -> None:
    if not lot:
        return
    try:
        created = sum(pushed.created for pushed in queue.push_many(lot))
    except DfqError:
        before = loaded.pushed + loaded.existing
        note(
            f"of the rows, {counted(before, 'task')} are in the queue for sure; "
            "pushing the file again with --id-field leaves them alone"
        )
        raise
    loaded.pushed += created
    loaded.existing += len(lot) - created
    on_lot(loaded)


def _checked(
    queue: Queue, row: Row, options: dict[str, Any], id_field: str | None
) -> NewTask | BadRow:
    try:
        task_id = None if id_field is None else _id_in(row.payload, id_field)
        return queue.new_task(row.payload, id=task_id, **options)
    except (DfqError, LookupError) as error:
        return BadRow(row.number, str(error))


class NoId(LookupError):
    """A row has nothing usable in its id field."""

    def __str__(self) -> str:
        return str(self.args[0])


def _id_in(payload: JSON, field: str) -> str:
    if not isinstance(payload, dict):
        raise NoId(f"no object, so it has no field {field!r} to take the id from")
    if field not in payload:
        raise NoId(f"no field {field!r} to take the id from")
    value = payload[field]
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise NoId(f"the field {field!r} is {type(value).__name__}; an id is a string or a number")
    return value
