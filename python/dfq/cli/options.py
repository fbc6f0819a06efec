"""What commands have in common: options, the queue argument, examples in the help."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dfq.cli.app import set_debug
from dfq.cli.locate import id_looks_like_queue, only_queue, open_queue, queue_and_rest

if TYPE_CHECKING:
    from dfq.record import Filter

Function = TypeVar("Function", bound=Callable[..., Any])


class Command(click.Command):
    """A command whose help ends with examples; a test runs every one of them."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = tuple(examples)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, unless a variable is misspelt: then its setting would not hold."""
        if any(variable.startswith("DFQ_") for variable in os.environ):
            from dfq.config import known_variables

            known_variables(os.environ)
        return super().invoke(ctx)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, one a line, never wrapped."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            formatter.write_paragraph()
            formatter.write_heading("Examples")
            for example in self.examples:
                formatter.write(f"  {example}\n")


class Group(Command, click.Group):
    """Commands with one purpose; its help ends with examples, too."""


def command(*examples: str, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a function a command with examples."""
    return click.command(cls=Command, examples=examples, **settings)


def complete_queue(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[Any]:
    """In a shell, a queue completes as a folder."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON to stdout, for programs."
)


def quiet_option(help: str) -> Callable[[Function], Function]:
    """The option --quiet; each command says what it leaves out."""
    return click.option("--quiet", is_flag=True, default=None, help=help)


debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=set_debug,
    hidden=True,
    help="Show tracebacks.",
)
queue_option = click.option(
    "-q",
    "--queue",
    "queue_option",
    metavar="QUEUE",
    shell_complete=complete_queue,
    help="The queue, instead of as argument.",
)
queue_argument = click.argument("queue", required=False, shell_complete=complete_queue)


def words_argument(metavar: str) -> Callable[[Function], Function]:
    """The arguments of a command that takes more than a queue."""
    return click.argument("words", nargs=-1, metavar=metavar, shell_complete=complete_queue)


def takes_queue() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the argument QUEUE; the function gets it open, as ``queue``."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_queue(*args: Any, queue: str | None, queue_option: str | None, **rest: Any) -> Any:
            url = only_queue(queue, queue_option)
            with open_queue(url) as opened:
                return function(*args, queue=opened, **rest)

        return _common(queue_argument(with_queue))

    return decorate


def takes_queue_and_ids(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the arguments QUEUE ID...; the function gets ``queue`` and ``ids``.

    A command with a flag called ``everything`` takes no ids beside it.
    """

    @functools.wraps(function)
    def with_ids(*args: Any, words: tuple[str, ...], queue_option: str | None, **rest: Any) -> Any:
        if rest.get("everything") and len(words) == 1:
            url = only_queue(words[0], queue_option)
            words = ()
        else:
            url, ids = queue_and_rest(words, queue_option, id_looks_like_queue)
            words = tuple(ids)
        with open_queue(url) as opened:
            return function(*args, queue=opened, ids=list(words), **rest)

    return _common(words_argument("[QUEUE] [ID]...")(with_ids))


def _common(function: Callable[..., Any]) -> Callable[..., Any]:
    for option in (debug_option, json_option, queue_option):
        function = option(function)
    return function


def running_options(function: Function) -> Function:
    """Options that say how a worker runs; `dfq service install` hands them on."""
    for option in (
        click.option("--metrics-host", metavar="HOST", help="And under this address: 127.0.0.1."),
        click.option(
            "--metrics-port", type=int, metavar="N", help="Serve Prometheus metrics here."
        ),
        click.option(
            "--results-to",
            metavar="INDEX",
            help="Put results into this index before they are acked.",
        ),
        click.option("--health", metavar="FILE", help="Write here when it last polled."),
        click.option("--worker-id", metavar="ID", help="The name in leases and logs."),
        click.option("--lease", type=DURATION, help="How long a lease lives without a heartbeat."),
        click.option("--grace", type=DURATION, help="Time to finish after SIGTERM or Ctrl-C."),
        click.option("--timeout", type=DURATION, help="The longest a task may take: 90, 5m."),
        click.option("--processes", type=int, metavar="N", help="Worker processes."),
        click.option("--concurrency", type=int, metavar="N", help="Tasks worked on at once."),
        click.option("--exec", "exec_", metavar="COMMAND", help="A program to run for every task."),
        click.option(
            "--handler",
            "handlers",
            metavar="TARGET",
            multiple=True,
            help="pkg.mod:function, or a module of decorated tasks; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def filter_options(function: Function) -> Function:
    """Options that choose tasks; :func:`chosen` makes a filter of them."""
    for option in (
        click.option("--name", "names", multiple=True, help="Only tasks of this name."),
        click.option("--max-priority", metavar="PRIORITY", help="Only tasks up to this priority."),
        click.option("--min-priority", metavar="PRIORITY", help="Only tasks from this priority."),
        click.option(
            "--label", "labels", multiple=True, help="Only tasks with this label; all, if repeated."
        ),
        click.option("--project", help="Only tasks of this project."),
    ):
        function = option(function)
    return function


def chosen(
    project: str | None,
    labels: tuple[str, ...],
    min_priority: str | None,
    max_priority: str | None,
    names: tuple[str, ...],
) -> Filter:
    """The filter that :func:`filter_options` asked for."""
    from dfq.record import Filter
    from dfq.task import check_priority

    return Filter(
        project=project,
        labels=labels,
        min_priority=None if min_priority is None else check_priority(min_priority),
        max_priority=None if max_priority is None else check_priority(max_priority),
        names=names or None,
    )


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


class Duration(click.ParamType):  # type: ignore[type-arg]
    """Seconds, or a number with a unit: 90, 1.5h, 30m, 7d."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The duration in seconds."""
        if isinstance(value, int | float):
            return float(value)
        text = str(value).strip()
        factor = _UNITS.get(text[-1:], 0.0)
        number = text[:-1] if factor else text
        try:
            seconds = float(number) * (factor or 1.0)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e11:
            self.fail(f"{text!r} is no length of time; use seconds, or 30m, 1.5h, 7d", param, ctx)
        return seconds


DURATION = Duration()
