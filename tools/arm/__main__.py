"""``python -m tools.arm``: the steps, each of which does first what it needs."""

from __future__ import annotations

import argparse
import sys

from tools.arm import guest, history, root, suites, wheel
from tools.arm.places import ARM64, SUITES, TARGETS
from tools.arm.shell import Failed, say


def main() -> int:
    """One subcommand."""
    arguments = _parser().parse_args()
    try:
        code: int = arguments.step(arguments)
        return code
    except Failed as failed:
        say(str(failed))
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.arm", description=__doc__)
    steps = parser.add_subparsers(required=True)

    step = steps.add_parser("wheel", help="build a checked wheel into dist/")
    step.add_argument("machine", choices=TARGETS)
    step.set_defaults(step=_wheel)

    for name, action, text in (
        ("prepare", _prepare, "make the arm64 tree with the wheel of dist/ in it"),
        ("test", _test, "run the core of the tests in the tree"),
        ("bench", _bench, "run the benchmarks in the tree, and compare with the baseline"),
        ("run", _run, "run a command in the tree; what it writes to /out stays in the cache"),
    ):
        step = steps.add_parser(name, help=text)
        step.add_argument("suite", choices=SUITES)
        step.set_defaults(step=action)
        if action is not _prepare:
            step.add_argument("--seconds", type=float, default=1800, help="it ends by then")
        if action is _bench:
            step.add_argument("--keep", action="store_true", help="make this run the baseline")
        if action is _run:
            step.add_argument("command", nargs=argparse.REMAINDER)
    return parser


def _wheel(arguments: argparse.Namespace) -> int:
    wheel.build(TARGETS[arguments.machine])
    return 0


def _prepare(arguments: argparse.Namespace) -> int:
    suite = SUITES[arguments.suite]
    root.prepare(suite)
    root.install(suite, wheel.find(ARM64))
    return 0


def _test(arguments: argparse.Namespace) -> int:
    # It needs pytest, which who only makes wheels does not have.
    from tools.arm.core import CORE, ON

    return suites.test(SUITES[arguments.suite], CORE, ON, seconds=arguments.seconds)


def _bench(arguments: argparse.Namespace) -> int:
    suite = SUITES[arguments.suite]
    report = suites.bench(suite, seconds=arguments.seconds)
    measured = history.measured_in(suite.name, report)
    baseline = history.read_baseline()
    before = baseline.get(suite.name, {}).get("ratios", {})
    for name, ratio in measured.ratios.items():
        say(f"{name}: {ratio:g} times the first design; the baseline's: {before.get(name, 'none')}")
    say(
        f"an idle worker has {measured.idle_kilobytes:,} kB in memory, and "
        f"{measured.growth_percent:+} % after many tasks"
    )
    if arguments.keep:
        history.keep(measured)
        history.plot(history.read_history(), history.PLOT)
        return 0
    history.plot([*history.read_history(), measured], suites.out(suite) / "history.svg")
    for line in history.shortfalls(measured):
        say(f"slower than promised, which fails nothing: {line}")
    found = history.worse(measured, baseline)
    for line in found:
        say(f"worse than the baseline: {line}")
    return 1 if found else 0


def _run(arguments: argparse.Namespace) -> int:
    suite = SUITES[arguments.suite]
    return guest.run(suite, arguments.command, seconds=arguments.seconds, shared=suites.out(suite))


if __name__ == "__main__":
    sys.exit(main())
