"""``python -m dfq`` is the command ``dfq``."""

from __future__ import annotations

from dfq.cli import main

if __name__ == "__main__":
    main()
