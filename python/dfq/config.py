"""Settings from dfq.toml, DFQ_* variables and options, in that order of growing strength.

A setting has one name: ``grace_seconds`` in dfq.toml is ``DFQ_GRACE_SECONDS`` in the
environment. What belongs to a queue for all its workers is its policy, in queue.json.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dfq.cost import Prices
from dfq.errors import InvalidConfig
from dfq.policy import nearest

FILE_NAME = "dfq.toml"

#: Variables that are no settings: a worker sets them for the program of ``--exec`` and for its
#: own processes.
OTHER_VARIABLES = frozenset(
    {
        "DFQ_ATTEMPT",
        "DFQ_CONFIG",
        "DFQ_CORRELATION_ID",
        "DFQ_FENCE",
        "DFQ_TASK_ID",
        "DFQ_TASK_NAME",
        "DFQ_WORKER_CHILD",
        "DFQ_WORKER_NOTIFY",
    }
)
#: Nor are those of dfq's own tests and benchmarks.
OTHER_PREFIXES = ("DFQ_BENCH_", "DFQ_TEST_")

#: A table of its own in dfq.toml: what requests cost.
_PRICES = "prices"
_SEARCH_LEVELS = 64
_WORDS = {"1": True, "true": True, "yes": True, "on": True}
_WORDS |= {"0": False, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Config:
    """What the command line works with when an option is not given."""

    #: The queue, if a command names none. In dfq.toml a relative path starts at the file.
    queue_url: str | None = None
    #: No progress bars, and no counts after the rows of a file were pushed.
    quiet: bool = False
    #: What a worker runs: ``pkg.mod:function`` or a module of decorated tasks; commas between.
    handler: str | None = None
    #: What a worker runs instead: a program.
    exec: str | None = None
    #: Tasks a worker works on at once.
    concurrency: int = 1
    #: Worker processes.
    processes: int = 1
    #: The longest a task may take.
    timeout_seconds: float | None = None
    #: How long running tasks may take to finish after SIGTERM.
    grace_seconds: float = 30.0
    #: How long a lease lives without a heartbeat; the queue's policy if absent.
    lease_seconds: float | None = None
    #: Where a worker writes when it last polled.
    health_path: str | None = None
    #: Where a worker serves Prometheus metrics: the port,
    metrics_port: int | None = None
    #: and the address.
    metrics_host: str = "127.0.0.1"
    #: Log JSON lines.
    log_json: bool = False

    def with_options(self, **options: Any) -> Config:
        """The same with every option that was given, that is, not None."""
        return dataclasses.replace(
            self, **{key: value for key, value in options.items() if value is not None}
        )


_KINDS: dict[str, type] = {
    "queue_url": str,
    "quiet": bool,
    "handler": str,
    "exec": str,
    "concurrency": int,
    "processes": int,
    "timeout_seconds": float,
    "grace_seconds": float,
    "lease_seconds": float,
    "health_path": str,
    "metrics_port": int,
    "metrics_host": str,
    "log_json": bool,
}
_PATHS = ("queue_url", "health_path")
_EXPECTED = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number of seconds",
}


def load_config(environment: Mapping[str, str] | None = None, start: Path | None = None) -> Config:
    """Read dfq.toml, if there is one, then the DFQ_* variables over it."""
    environment = os.environ if environment is None else environment
    settings: dict[str, Any] = {}
    path = find_file(environment, start)
    if path is not None:
        settings.update(read_file(path))
    settings.update(read_environment(environment))
    return Config(**settings)


def find_file(environment: Mapping[str, str], start: Path | None = None) -> Path | None:
    """The dfq.toml in force: DFQ_CONFIG, or the nearest in ``start`` and its parents up to home."""
    named = environment.get("DFQ_CONFIG")
    if named is not None:
        path = Path(named).expanduser()
        if not path.is_file():
            raise InvalidConfig(f"DFQ_CONFIG names {named!r}, which is no file; mend or unset it")
        return path
    try:
        folder = Path.cwd() if start is None else start.absolute()
    except OSError:  # the current folder was deleted: nothing to find in it
        return None
    home = Path(environment["HOME"]) if environment.get("HOME") else None
    for level in [folder, *folder.parents][:_SEARCH_LEVELS]:
        candidate = level / FILE_NAME
        if os.path.isfile(candidate):  # noqa: PTH113 - false, not an error, where we may not look
            _refuse_foreign(candidate)
            return candidate
        if level == home:
            break
    return None


def load_prices(environment: Mapping[str, str] | None = None, start: Path | None = None) -> Prices:
    """The table ``[prices]`` of dfq.toml over the defaults."""
    path = find_file(os.environ if environment is None else environment, start)
    table = {} if path is None else _parse(path).get(_PRICES, {})
    if not isinstance(table, dict):
        raise InvalidConfig(f"{path}: {_PRICES} is {table!r}; it must be a table: [{_PRICES}]")
    known = [field.name for field in dataclasses.fields(Prices)]
    for key, value in table.items():
        where = f"{path}: {_PRICES}.{key}"
        if key not in known:
            raise InvalidConfig(f"{where} is unknown; {nearest(key, known)}")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < math.inf:
            raise InvalidConfig(f"{where} is {value!r}; it must be the price of a million requests")
    return Prices(**table)


def read_file(path: Path) -> dict[str, Any]:
    """The settings of one dfq.toml."""
    settings = {}
    for key, value in _parse(path).items():
        if key == _PRICES:
            continue
        if key not in _KINDS:
            known = [*_KINDS, _PRICES]
            raise InvalidConfig(f"{path}: unknown key {key!r}; {nearest(key, known)}")
        settings[key] = _checked(value, _KINDS[key], f"{path}: {key}")
        if key in _PATHS:
            settings[key] = _beside(path, settings[key])
    return settings


def _parse(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{path}: this is not TOML: {error}") from None
    except OSError as error:
        raise InvalidConfig(f"{path}: can't be read: {error.strerror}") from None


def read_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    """The settings among the DFQ_* variables."""
    settings = {}
    for variable, key in known_variables(environment).items():
        settings[key] = _parsed(environment[variable], _KINDS[key], f"the variable {variable}")
        if key in _PATHS:
            # Where no shell did it: systemd and Docker pass variables on as they are.
            settings[key] = os.path.expanduser(settings[key])  # noqa: PTH111 - it may be a URL
    return settings


def known_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The DFQ_* variables that are settings, and of which; an unknown one is an error."""
    known = {f"DFQ_{key.upper()}": key for key in _KINDS}
    found = {}
    for variable in sorted(environment):
        if not variable.startswith("DFQ_") or variable in OTHER_VARIABLES:
            continue
        if variable.startswith(OTHER_PREFIXES):
            continue
        if variable not in known:
            near = nearest(variable, [*known, "DFQ_CONFIG"])
            raise InvalidConfig(f"the variable {variable} is unknown; {near}")
        found[variable] = known[variable]
    return found


def _checked(value: object, kind: type, where: str) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InvalidConfig(f"{where} is {value!r}; it must be {_EXPECTED[kind]}")
    if value == "":
        raise InvalidConfig(f"{where} is empty; give it a value or leave it out")
    return value


def _parsed(text: str, kind: type, where: str) -> Any:
    value: object = text
    if kind is bool:
        value = _WORDS.get(text.strip().lower(), text)
    elif kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            value = text
    return _checked(value, kind, where)


def _beside(path: Path, value: str) -> str:
    if "://" in value:
        return value
    return str(path.parent / Path(value).expanduser())


def _refuse_foreign(path: Path) -> None:
    # A dfq.toml can name a program to run, so one that lies in a shared folder such as /tmp
    # counts only if whoever wrote it may run programs as us anyway.
    owner = path.stat().st_uid
    if owner not in (os.geteuid(), 0):
        raise InvalidConfig(
            f"{path} belongs to another user (uid {owner}) and could make dfq run their programs; "
            f"remove it, or set DFQ_CONFIG={path} if you trust it"
        )
