"""How long a test waits for what should happen: longer where everything is slow."""

from __future__ import annotations

import os

#: So many times as long as on a plain machine. In the emulator a Python takes seconds to start.
_TIMES = float(os.environ.get("DFQ_TEST_PATIENCE", "1"))


def patience(seconds):
    """The time after which it is not slow, but stuck."""
    return seconds * _TIMES
