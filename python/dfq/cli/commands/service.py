"""`dfq service`: a worker that systemd keeps running."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from dfq.cli.options import (
    DURATION,
    Command,
    Function,
    debug_option,
    filter_options,
    json_option,
    queue_argument,
    queue_option,
    running_options,
)
from dfq.cli.output import json_line, line, note

if TYPE_CHECKING:
    from dfq.service.systemd import Systemd

_SIZE = re.compile(r"[1-9][0-9]{0,15}[KMGT]?|[1-9][0-9]?%|100%|infinity")


def scope_options(function: Function) -> Function:
    """Options that say whose service, and which one."""
    for option in (
        debug_option,
        json_option,
        click.option("--unit", metavar="NAME", help="Its name; by the queue's, if not given."),
        click.option("--system", is_flag=True, help="A service of the system; root's default."),
        click.option("--user", is_flag=True, help="One of your own; the default otherwise."),
        queue_option,
        queue_argument,
    ):
        function = option(function)
    return function


def memory_size(_ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    """A size as systemd writes it."""
    if not _SIZE.fullmatch(value):
        raise click.BadParameter(f"{value!r} is no size; write 256M, 50% or infinity")
    return value


@click.group()
def command() -> None:
    """Keep a worker running, by systemd.

    The worker starts with the machine, is started again when it fails or hangs, and logs into
    the journal. One service for each queue, called dfq- and the last part of the queue's name.
    """


@command.command(
    "install",
    cls=Command,
    examples=(
        "dfq service install jobs --handler shop.tasks --user --print",
        "dfq service install jobs --exec ./convert.sh --memory 256M --user --now",
    ),
)
@scope_options
@running_options
@click.option("--log-json", is_flag=True, default=None, help="Log JSON lines.")
@filter_options
@click.option("--run-as", metavar="USER", help="With --system: as whom; the queue's owner.")
@click.option(
    "--env-file",
    type=click.Path(),
    help="Where credentials are, as NAME=value; they are never in the unit.",
)
@click.option(
    "--write",
    "writable",
    multiple=True,
    metavar="DIR",
    help="With --system: another place it may write to; may be repeated.",
)
@click.option(
    "--memory",
    default="50%",
    show_default=True,
    metavar="SIZE",
    callback=memory_size,
    help="The most it may use: 256M, 50%, infinity.",
)
@click.option(
    "--watchdog",
    type=DURATION,
    default=300.0,
    show_default="5m",
    help="Started again when it gives no sign of life for so long.",
)
@click.option("--print", "only_print", is_flag=True, help="Print the unit; change nothing.")
@click.option("--now", is_flag=True, help="Start it, too, and wait until it is ready.")
def install(
    *,
    queue: str | None,
    queue_option: str | None,
    unit: str | None,
    user: bool,
    system: bool,
    only_print: bool,
    now: bool,
    as_json: bool,
    watchdog: float,
    **given: Any,
) -> None:
    """Make a worker a service.

    Options are those of `dfq worker`; handlers and dfq.toml are looked for in the current
    folder, now and then. Installed again, it takes the new options.
    """
    from dfq.cli.service_plan import notes_on, plan, scope_for
    from dfq.service.install import put
    from dfq.service.systemd import Systemd

    if watchdog < 1:
        raise click.UsageError("--watchdog has to be a second at least")
    scope = scope_for(user=user, system=system)
    planned = plan(
        queue,
        queue_option,
        unit=unit,
        scope=scope,
        watchdog=watchdog,
        only_print=only_print,
        **given,
    )
    manager = Systemd(scope)
    if only_print:
        text = planned.render()
        if as_json:
            json_line({"unit": planned.name, "file": str(manager.file(planned.name)), "text": text})
        else:
            click.echo(text, nl=False)
        return
    replaced = put(manager, planned, now=now)
    notes = list(notes_on(planned, started=now, replaced=replaced))
    if as_json:
        json_line(
            {
                "unit": planned.name,
                "scope": scope,
                "file": str(manager.file(planned.name)),
                "queue": planned.queue,
                "environment_file": planned.environment_file,
                "replaced": replaced,
                "started": now,
                "notes": notes,
            }
        )
        return
    line(f"{'replaced' if replaced else 'installed'} {planned.name}, a service of the {scope}")
    line(f"  unit         {manager.file(planned.name)}")
    line(f"  credentials  {planned.environment_file}")
    for text in notes:
        note(f"note: {text}")


@command.command("status", cls=Command, examples=("dfq service status --user --json",))
@scope_options
@click.pass_context
def status(
    ctx: click.Context,
    *,
    queue: str | None,
    queue_option: str | None,
    unit: str | None,
    user: bool,
    system: bool,
    as_json: bool,
) -> None:
    """Say how services are: all, or that of a queue.

    Ends with 0 if all of them run, with 1 if not.
    """
    from dfq.cli.service_plan import scope_for
    from dfq.service.systemd import Systemd, own_queue

    manager = Systemd(scope_for(user=user, system=system))
    if queue is None and queue_option is None and unit is None:
        names = manager.names()
    else:
        names = [_installed(manager, queue, queue_option, unit)]
    if names:
        manager.require()
    elif not as_json:
        note("no service is installed; `dfq service install` makes one")
    well = True
    for name in names:
        state = manager.properties(name)
        well = well and state.get("ActiveState") == "active"
        if as_json:
            json_line({"unit": name, "queue": own_queue(manager.file(name)), **_values(state)})
        else:
            _tell(name, own_queue(manager.file(name)) or "", state)
    ctx.exit(0 if well else 1)


@command.command("logs", cls=Command, examples=("dfq service logs jobs --user -n 20",))
@scope_options
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option(
    "-n", "--lines", type=click.IntRange(0), default=100, show_default=True, help="How many."
)
@click.option("--since", metavar="TIME", help="From then on: today, '2 hours ago', 2026-11-18.")
@click.pass_context
def logs(
    ctx: click.Context,
    *,
    queue: str | None,
    queue_option: str | None,
    unit: str | None,
    user: bool,
    system: bool,
    as_json: bool,
    follow: bool,
    lines: int,
    since: str | None,
) -> None:
    """Show what a service logged, from the journal."""
    from dfq.cli.service_plan import scope_for
    from dfq.service.systemd import Systemd

    manager = Systemd(scope_for(user=user, system=system))
    name = _installed(manager, queue, queue_option, unit)
    words = [f"--lines={lines}"]
    words += ["--follow"] if follow else []
    words += [f"--since={since}"] if since is not None else []
    words += ["--output=json"] if as_json else []
    ctx.exit(manager.journal(name, words))


@command.command("remove", cls=Command, examples=("dfq service remove jobs --user",))
@scope_options
def remove(
    *,
    queue: str | None,
    queue_option: str | None,
    unit: str | None,
    user: bool,
    system: bool,
    as_json: bool,
) -> None:
    """Stop a service and take it away.

    What runs may finish within --grace. The queue, its tasks and the credentials stay.
    """
    from dfq.cli.service_plan import scope_for
    from dfq.service.install import remove as take_away
    from dfq.service.systemd import Systemd

    manager = Systemd(scope_for(user=user, system=system))
    name = _installed(manager, queue, queue_option, unit)
    take_away(manager, name)
    if as_json:
        json_line({"unit": name, "removed": True})
    else:
        line(f"removed {name}; its queue is as it was")


def _installed(
    manager: Systemd, queue: str | None, queue_option: str | None, unit: str | None
) -> str:
    """The name of a service that is there, by its own name or its queue's."""
    from dfq.cli.locate import only_queue
    from dfq.cli.service_plan import queue_place
    from dfq.service.install import check_name
    from dfq.service.systemd import NoSuchService, own_queue

    if unit is not None:
        name = check_name(unit)
        if name not in manager.names():
            raise NoSuchService(f"there is no service {name}; `dfq service status` lists those")
        return name
    place, _ = queue_place(only_queue(queue, queue_option))
    found = [n for n in manager.names() if own_queue(manager.file(n)) == place]
    if not found:
        raise NoSuchService(
            f"no {manager.scope} service works on {place}; `dfq service status` lists those there "
            "are, and --user and --system say whose"
        )
    if len(found) > 1:
        raise click.UsageError(f"several work on it: {', '.join(found)}; say which with --unit")
    return found[0]


def _values(state: dict[str, str]) -> dict[str, Any]:
    """Properties under names of ours; a number that is none (yet) is null."""
    named = {
        "active": "ActiveState",
        "state": "SubState",
        "enabled": "UnitFileState",
        "pid": "MainPID",
        "restarts": "NRestarts",
        "memory_bytes": "MemoryCurrent",
        "result": "Result",
        "exit_code": "ExecMainStatus",
        "since": "ActiveEnterTimestamp",
        "says": "StatusText",
    }
    values: dict[str, Any] = {key: state.get(name) or None for key, name in named.items()}
    for key in ("pid", "restarts", "memory_bytes", "exit_code"):
        text = values[key]
        values[key] = int(text) if text is not None and text.isdigit() else None
    values["pid"] = values["pid"] or None
    # What systemd says where nothing is counted: 2**64 - 1.
    if values["memory_bytes"] is not None and values["memory_bytes"] >= 1 << 63:
        values["memory_bytes"] = None
    return values


def _tell(name: str, queue: str, state: dict[str, str]) -> None:
    values = _values(state)
    line(f"{name}: {values['active']} ({values['state']}), {values['enabled']}, for {queue}")
    if values["pid"]:
        memory = values["memory_bytes"]
        used = "" if memory is None else f", {memory / 2**20:.0f} MB"
        line(f"  pid {values['pid']}{used}, since {values['since']}")
    if values["restarts"]:
        line(f"  started again {values['restarts']} times")
    if values["result"] not in (None, "success"):
        line(f"  ended badly: {values['result']}, exit code {values['exit_code']}")
    if values["says"]:
        line(f"  {values['says']}")
