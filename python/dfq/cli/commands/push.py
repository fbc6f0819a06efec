"""`dfq push`."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from dfq.cli.locate import open_queue, queue_and_rest
from dfq.cli.options import (
    DURATION,
    debug_option,
    json_option,
    queue_option,
    quiet_option,
    words_argument,
)
from dfq.cli.options import (
    command as dfq_command,
)
from dfq.cli.output import complain, counted, json_line, line, note
from dfq.cli.payloads import STDIN, payloads, push_argument_is_queue
from dfq.cli.rows import FORMATS, BadRow, format_of, read_rows
from dfq.errors import DfqError

if TYPE_CHECKING:
    from dfq.cli.loading import Loaded
    from dfq.queue import Queue

BAD_INPUT = 65
#: So many bad lines are reported one by one; the others are only counted.
BAD_LINES_SHOWN = 20


class NoInput(DfqError, OSError):
    """The file to push can't be read."""

    exit_code = 66


@dfq_command(
    """dfq push jobs '{"url": "https://example.com"}'""",
    "dfq push jobs url=https://example.com depth:=2 --priority high",
    "dfq push jobs report=weekly --id report-45 --delay 1h --depends-on invoice-17",
    "dfq push jobs --file orders.csv --id-field order",
    "dfq ls jobs --state failed --json | dfq push archive - --id-field id",
)
@words_argument("[QUEUE] [PAYLOAD]...")
@queue_option
@click.option(
    "-f", "--file", "file_name", metavar="FILE", help="Push the rows of a file; - is stdin."
)
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="What is in it, if its name won't say."
)
@click.option("--id-field", metavar="NAME", help="The field or column that holds a row's id.")
@click.option("--skip-bad", is_flag=True, help="Go on after a bad line.")
@click.option("--id", "task_id", metavar="ID", help="The task's id; made if absent.")
@click.option("--name", help="Which handler is to run it.")
@click.option("--priority", default="normal", help="low, normal, high, critical or a number.")
@click.option("--label", "labels", multiple=True, help="A label; may be repeated.")
@click.option("--project", help="What it belongs to.")
@click.option(
    "--depends-on", multiple=True, metavar="ID", help="Not before this task is completed."
)
@click.option("--delay", type=DURATION, help="Not before so long from now: 90, 30m, 2h.")
@click.option("--not-before", metavar="TIME", help="Not before this moment: 2030-01-31T08:00Z.")
@click.option("--ttl", type=DURATION, help="Fails if not begun within this time.")
@click.option("--max-attempts", type=int, metavar="N", help="Deliveries before it fails.")
@click.option("--retry-base", type=DURATION, help="The longest wait after the first failure.")
@click.option("--retry-cap", type=DURATION, help="The longest wait after any failure.")
@click.option("--correlation-id", metavar="ID", help="Names the work in all logs.")
@json_option
@quiet_option("Nothing but ids and errors: no counts, no progress bar.")
@debug_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    words: tuple[str, ...],
    queue_option: str | None,
    file_name: str | None,
    kind: str | None,
    id_field: str | None,
    skip_bad: bool,
    task_id: str | None,
    as_json: bool,
    quiet: bool | None,
    **envelope: Any,
) -> None:
    """Put tasks into a queue.

    A PAYLOAD is a JSON value, or name=text and name:=JSON pairs that make one object, or - for
    rows on stdin. With --file every row of a file is a task: JSON lines, or CSV, TSV or USV with
    a header. The queue is made if it is not there. When this ends well, the tasks survive a
    power cut.

    A bad line ends it with exit code 65; the lines before it are pushed. Rows whose id is
    there already are counted and left alone.
    """
    url, rest = queue_and_rest(words, queue_option, push_argument_is_queue)
    if rest == [STDIN]:
        file_name, rest = file_name or STDIN, []
    _refuse_contradictions(rest, file_name, task_id, id_field)
    if file_name is not None:
        format_of(file_name, kind)
    with open_queue(url, create=True) as queue:
        options = _envelope(**envelope)
        if file_name is None:
            _push_arguments(queue, rest, task_id, options, as_json)
            return
        from dfq.config import load_config

        silent = load_config().with_options(quiet=quiet).quiet
        loaded = _push_file(queue, file_name, kind, id_field, skip_bad, options, silent or as_json)
    _report_bad(loaded, *_called(file_name, format_of(file_name, kind)))
    if as_json:
        _report_json(loaded)
    elif not silent:
        _report(loaded, _called(file_name, format_of(file_name, kind))[1])
    if loaded.stopped_at is not None:
        ctx.exit(BAD_INPUT)


def _refuse_contradictions(
    arguments: list[str], file_name: str | None, task_id: str | None, id_field: str | None
) -> None:
    if file_name is not None and arguments:
        raise click.UsageError("give payloads or --file, not both")
    if file_name is None and not arguments:
        raise click.UsageError(
            "nothing to push: give a payload, as in '{\"a\": 1}' or a=1, or --file FILE"
        )
    if file_name is not None and task_id is not None:
        raise click.UsageError("--id is for one task; rows take theirs from --id-field")
    if file_name is None and id_field is not None:
        raise click.UsageError("--id-field is for --file; use --id")
    if task_id is not None and len(arguments) > 1 and len(payloads(arguments)) > 1:
        raise click.UsageError("--id is for one task, and there are several payloads")


def _envelope(
    retry_base: float | None,
    retry_cap: float | None,
    not_before: str | None,
    **options: Any,
) -> dict[str, Any]:
    if retry_base is not None or retry_cap is not None:
        from dfq.policy import RetryPolicy

        given = {"base_seconds": retry_base, "cap_seconds": retry_cap}
        options["retry"] = RetryPolicy(**{k: v for k, v in given.items() if v is not None})
    if not_before is not None:
        options["not_before"] = _moment(not_before)
    return options


def _moment(text: str) -> Any:
    from datetime import datetime

    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(
            f"{text!r} is no moment; write 2030-01-31T08:00 (local time) or 2030-01-31T08:00Z",
            param_hint="--not-before",
        ) from None


def _push_arguments(
    queue: Queue, arguments: list[str], task_id: str | None, options: dict[str, Any], as_json: bool
) -> None:
    values = payloads(arguments)
    if len(values) == 1:
        ids = [queue.push(values[0], id=task_id, **options).id]
    else:
        ids = [p.id for p in queue.push_many([queue.new_task(v, **options) for v in values])]
    for pushed in ids:
        if as_json:
            json_line({"id": pushed, "created": True})
        else:
            line(pushed)


def _push_file(
    queue: Queue,
    file_name: str,
    kind: str | None,
    id_field: str | None,
    skip_bad: bool,
    options: dict[str, Any],
    silent: bool,
) -> Loaded:
    from dfq.cli.loading import load
    from dfq.cli.progress import progress

    kind = format_of(file_name, kind)
    source, row_word = _called(file_name, kind)
    shown = 0

    def report_bad(row: BadRow) -> None:
        nonlocal shown
        shown += 1
        if shown <= BAD_LINES_SHOWN:
            complain(f"{source}: {row_word} {row.number}: {row.problem}")

    # A header, quotes and escapes make a line longer than its payload.
    limit = 2 * queue.policy.max_payload_bytes + 65_536
    with _opened(file_name) as stream:
        total = _size(stream)
        unit = "tasks" if total is None else "bytes"
        with progress(f"pushing {source}", total, silent=silent, unit=unit) as bar:

            def show(loaded: Loaded) -> None:
                bar.update(loaded.pushed + loaded.existing if total is None else stream.tell())

            return load(
                queue,
                read_rows(stream, kind, limit=limit),
                options=options,
                id_field=id_field,
                skip_bad=skip_bad,
                on_bad=report_bad,
                on_lot=show,
            )


def _opened(file_name: str) -> IO[bytes]:
    try:
        # click.open_file leaves stdin open when done and opens a file at once.
        return click.open_file(file_name, "rb")
    except OSError as error:
        raise NoInput(f"{file_name} can't be read: {error.strerror}") from None


def _called(file_name: str, kind: str) -> tuple[str, str]:
    """What messages call the file and its rows."""
    return ("stdin" if file_name == STDIN else file_name, "record" if kind == "usv" else "line")


def _size(stream: IO[bytes]) -> int | None:
    import os
    import stat

    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size else None


def _report_bad(loaded: Loaded, source: str, row_word: str) -> None:
    stop = loaded.stopped_at
    if stop is not None:
        note(
            f"stopped at {row_word} {stop.number} of {source}; every one before it is pushed, "
            "none after it. Mend it, or use --skip-bad to go on without it."
        )
    elif loaded.bad > BAD_LINES_SHOWN:
        note(f"{counted(loaded.bad, f'bad {row_word}')} in all")


def _report_json(loaded: Loaded) -> None:
    stop = loaded.stopped_at
    json_line(
        {
            "pushed": loaded.pushed,
            "existing": loaded.existing,
            "bad": loaded.bad,
            "stopped_at": None if stop is None else stop.number,
        }
    )


def _report(loaded: Loaded, row_word: str) -> None:
    line(f"pushed {counted(loaded.pushed, 'task')}")
    if loaded.existing:
        line(f"left alone {counted(loaded.existing, 'task')} that were there already")
    if loaded.bad and loaded.stopped_at is None:
        line(f"skipped {counted(loaded.bad, f'bad {row_word}')}")
