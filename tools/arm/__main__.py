"""``python -m tools.arm``: the steps, each of which does first what it needs."""

from __future__ import annotations

import argparse
import sys

from tools.arm import guest, root, wheel
from tools.arm.places import ARM64, SUITES, TARGETS, cache
from tools.arm.shell import Failed, say


def main() -> int:
    """One subcommand."""
    arguments = _parser().parse_args()
    try:
        return arguments.step(arguments)
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
        ("run", _run, "run a command in the tree; what it writes to /out stays in the cache"),
    ):
        step = steps.add_parser(name, help=text)
        step.add_argument("suite", choices=SUITES)
        step.set_defaults(step=action)
        if action is _run:
            step.add_argument("--seconds", type=float, default=600, help="it ends by then")
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


def _run(arguments: argparse.Namespace) -> int:
    shared = cache() / "out"
    shared.mkdir(exist_ok=True)
    return guest.run(
        SUITES[arguments.suite], arguments.command, seconds=arguments.seconds, shared=shared
    )


if __name__ == "__main__":
    sys.exit(main())
