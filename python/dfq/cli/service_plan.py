"""From what was asked for to the unit of a worker: who, where, and with which options."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dfq.cli.locate import NoQueueThere, local_folder, only_queue
from dfq.config import Config, load_config, read_environment
from dfq.engines.file_folder import is_queue
from dfq.errors import InvalidConfig
from dfq.service.install import check_name, name_for
from dfq.service.unit import Scope, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_CONTROLLERS = Path("/sys/fs/cgroup/cgroup.controllers")
#: The settings that a DFQ_* variable may give here, and that the service would not see.
_OPTIONS = {
    "handler": "--handler",
    "exec": "--exec",
    "concurrency": "--concurrency",
    "processes": "--processes",
    "timeout_seconds": "--timeout",
    "grace_seconds": "--grace",
    "lease_seconds": "--lease",
    "health_path": "--health",
    "metrics_port": "--metrics-port",
    "metrics_host": "--metrics-host",
    "log_json": "--log-json",
}
_CHOICES = {
    "worker_id": "--worker-id",
    "results_to": "--results-to",
    "project": "--project",
    "labels": "--label",
    "min_priority": "--min-priority",
    "max_priority": "--max-priority",
    "names": "--name",
}


def scope_for(*, user: bool, system: bool) -> Scope:
    """Whose manager: the system's for root, otherwise the user's own."""
    if user and system:
        raise click.UsageError("give --user or --system, not both")
    if user or system:
        return "system" if system else "user"
    return "system" if os.geteuid() == 0 else "user"


def queue_place(url: str) -> tuple[str, str | None]:
    """The queue as the service is to name it, and its folder if it has one."""
    folder = local_folder(url)
    if folder is None:
        if url.startswith("memory:"):
            raise InvalidConfig(
                "a queue in memory is gone with its process; a service needs one "
                "in a folder or a bucket"
            )
        return url, None
    place = _absolute(folder)
    return place, place


def plan(
    url: str | None,
    option: str | None,
    *,
    unit: str | None,
    scope: Scope,
    run_as: str | None,
    env_file: str | None,
    writable: tuple[str, ...],
    memory: str,
    watchdog: float,
    only_print: bool,
    **given: Any,
) -> Unit:
    """The unit that was asked for; raises on what would make it fail at every start."""
    queue, folder = queue_place(only_queue(url, option))
    name = name_for(queue) if unit is None else check_name(unit)
    if folder is not None and not is_queue(folder) and not only_print:
        raise NoQueueThere(
            f"there is no queue at {folder!r}; make it with `dfq init`, as the user who is to work"
        )
    if scope == "user" and run_as is not None:
        raise click.UsageError("--run-as is for --system; a user's service runs as that user")
    settings = _settings(given)
    config = _checked(settings, given)
    as_user = _user(folder, run_as, only_print) if scope == "system" else None
    places = [_absolute(place) for place in writable]
    runtime = None
    if config.health_path is not None:
        place = Path(_absolute(config.health_path)).parent
        runtime = runtime_directory(place, as_user)
        if runtime is None:
            places.append(str(place))
    results = _results(given["results_to"])
    home = Path.home() if scope == "user" else Path("/etc")
    default_file = home / (".config/dfq" if scope == "user" else "dfq") / f"{name}.env"
    return Unit(
        name=name,
        scope=scope,
        queue=queue,
        folder=folder,
        words=tuple(_words(queue, settings, {**given, "results_to": results})),
        working_directory=str(Path.cwd()),
        environment_file=_absolute(env_file) if env_file else str(default_file),
        environment=_environment(),
        user=as_user,
        grace_seconds=config.grace_seconds,
        watchdog_seconds=watchdog,
        memory=memory,
        writable=tuple(places),
        runtime=runtime,
        results=None if results is None else local_folder(results),
    )


def runtime_directory(place: Path, as_user: str | None) -> str | None:
    """A folder for the health file as RuntimeDirectory= has it; None if it is not below /run.

    The machine forgets what is below /run when it is switched off: it is systemd's to make anew.
    """
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    bases = [own] if as_user is None and own.startswith("/") else []
    bases += [] if as_user is None else ["/run", "/var/run"]
    for base in map(Path, bases):
        if place == base:
            raise InvalidConfig(
                f"--health lies in {place}, where a service can't write; give it a folder of "
                f"its own: {place}/dfq/…"
            )
        if place.is_relative_to(base) and not _of_others(place, as_user):
            return str(place.relative_to(base))
    return None


def _of_others(place: Path, as_user: str | None) -> bool:
    """Whether the folder is somebody else's: systemd would take it away from them."""
    import pwd

    try:
        found = place.stat()
    except OSError:
        return False
    try:
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    mine = found.st_uid == os.geteuid() if as_user is None else owner == as_user
    return not mine or bool(found.st_mode & 0o022)


def _results(index: str | None) -> str | None:
    """The index as the service is to name it."""
    if index is None or (folder := local_folder(index)) is None:
        return index
    return _absolute(folder)


def notes_on(unit: Unit, *, started: bool, replaced: bool) -> Iterator[str]:
    """What somebody who installs a worker should know, and would find out too late."""
    flag = "--user " if unit.scope == "user" else ""
    if not started and replaced:
        yield f"what runs keeps its old options until: systemctl {flag}restart {unit.name}"
    elif not started:
        yield f"it starts with the machine; at once: systemctl {flag}start {unit.name}"
    if unit.scope == "user":
        import pwd

        user = pwd.getpwuid(os.geteuid()).pw_name
        if not Path("/var/lib/systemd/linger", user).exists():
            yield f"it ends when you log out, unless you run: sudo loginctl enable-linger {user}"
    if unit.memory != "infinity" and _no_memory_controller():
        yield (
            "this kernel limits no memory; on Raspberry Pi OS add cgroup_enable=memory to the "
            "line in /boot/firmware/cmdline.txt and restart"
        )
    try:
        mode = Path(unit.environment_file).stat().st_mode
    except OSError:
        return
    if mode & 0o077:
        yield f"others can read the credentials: chmod 600 {unit.environment_file}"


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - a symlink stays what the user named


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Options over DFQ_* variables: both are known here and now only."""
    settings = {
        key: value for key, value in read_environment(os.environ).items() if key in _OPTIONS
    }
    if given["handlers"] and given["exec_"] is not None:
        raise click.UsageError("give --handler or --exec, not both")
    if given["handlers"] or given["exec_"] is not None:
        settings.pop("handler", None)
        settings.pop("exec", None)
    asked = {
        "handler": ",".join(given["handlers"]) or None,
        "exec": given["exec_"],
        "timeout_seconds": given["timeout"],
        "grace_seconds": given["grace"],
        "lease_seconds": given["lease"],
        "health_path": given["health"] and _absolute(given["health"]),
        **{key: given[key] for key in ("concurrency", "processes", "log_json")},
        **{key: given[key] for key in ("metrics_port", "metrics_host")},
    }
    settings.update({key: value for key, value in asked.items() if value is not None})
    return settings


def _checked(settings: Mapping[str, Any], given: Mapping[str, Any]) -> Config:
    from dfq.cli.options import chosen
    from dfq.worker.options import WorkerOptions

    config = load_config()
    if "handler" in settings or "exec" in settings:
        config = dataclasses.replace(config, handler=None, exec=None)
    config = config.with_options(**settings)
    if config.handler is None and config.exec is None:
        raise click.UsageError(
            "nothing to run: give --handler pkg.mod:function or --exec 'command'"
        )
    WorkerOptions(
        concurrency=config.concurrency,
        processes=config.processes,
        timeout_seconds=config.timeout_seconds,
        grace_seconds=config.grace_seconds,
        lease_seconds=config.lease_seconds,
        metrics_port=config.metrics_port,
        filter=chosen(
            given["project"],
            given["labels"],
            given["min_priority"],
            given["max_priority"],
            given["names"],
        ),
    )
    return config


def _words(queue: str, settings: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    # On SIGABRT, which systemd sends to what hangs, every thread says where it is.
    yield from (sys.executable, "-X", "faulthandler", "-m", "dfq", "worker", "-q", queue)
    # Where its disk is not mounted, a new queue would hide what is to be done.
    yield "--must-exist"
    for key, option in _OPTIONS.items():
        yield from _option(option, settings.get(key))
    for key, option in _CHOICES.items():
        for value in given[key] if isinstance(given[key], tuple) else (given[key],):
            yield from _option(option, value)


def _option(option: str, value: Any) -> Iterator[str]:
    if value is None or value is False:
        return
    if value is True:
        yield option
        return
    text = f"{value:g}" if isinstance(value, float) else str(value)
    # In one word: a value that starts with a dash is no option.
    yield f"{option}={text}"


def _environment() -> dict[str, str]:
    # Fewer arenas: what threads free is given back, which counts where memory is small.
    found = {"MALLOC_ARENA_MAX": "2", "PATH": _path()}
    if named := os.environ.get("DFQ_CONFIG"):
        found["DFQ_CONFIG"] = _absolute(str(Path(named).expanduser()))
    return found


def _path() -> str:
    """Programs are found as they are here, and first those beside the interpreter."""
    given = os.environ.get("PATH", os.defpath).split(":")
    own = str(Path(sys.executable).parent)
    return ":".join(dict.fromkeys((own, *(place for place in given if place.startswith("/")))))


def _user(folder: str | None, run_as: str | None, only_print: bool) -> str:
    """As whom a system service runs: whoever owns the queue, but root only if told so."""
    import pwd

    if run_as is not None:
        try:
            return pwd.getpwnam(run_as).pw_name
        except KeyError:
            raise InvalidConfig(
                f"there is no user {run_as!r} here; make one: sudo useradd --system {run_as}"
            ) from None
    owner = "root"
    if folder is not None and Path(folder).is_dir():
        number = Path(folder).stat().st_uid
        try:
            owner = pwd.getpwuid(number).pw_name
        except KeyError:
            owner = str(number)
    elif sudo := os.environ.get("SUDO_USER"):
        owner = sudo
    if owner == "root" and not only_print:
        raise InvalidConfig(
            "the worker would run as root; give --run-as USER, one who owns the queue "
            "(or --run-as root if that is meant)"
        )
    return owner


def _no_memory_controller() -> bool:
    try:
        return "memory" not in _CONTROLLERS.read_text().split()
    except OSError:
        return False
