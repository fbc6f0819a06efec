"""Run one seed again and tell all that happens.

python -m tests.simulation.replay SEED
"""

from __future__ import annotations

import sys
import traceback

from tests.simulation.scenario import trace


def main() -> int:
    lines, error = trace(int(sys.argv[1]))
    print(*lines, sep="\n")
    if error is None:
        print(f"seed {sys.argv[1]}: every invariant holds")
        return 0
    traceback.print_exception(error)
    print(f"seed {sys.argv[1]}: {type(error).__name__}: {error}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
