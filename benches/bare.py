"""The bare loop (rust/dfq-core/examples/bare_loop.rs): built once, run on a queue's directory."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def binary() -> Path:
    """The bare loop, optimised."""
    return example("bare_loop")


@functools.cache
def example(name: str) -> Path:
    """An example of the core, optimised; cargo decides whether there is anything to build."""
    if shutil.which("cargo") is None:
        raise RuntimeError(f"{name} needs cargo; install Rust, then run this again")
    done = subprocess.run(
        ["cargo", "build", "--release", "-p", "dfq-core", "--example", name,
         "--message-format=json-render-diagnostics"],
        cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    return next(
        Path(message["executable"])
        for message in messages
        if message["reason"] == "compiler-artifact" and message["target"]["name"] == name
    )


def run(mode: str, path: Path, number: int) -> float:
    """Seconds of ``push`` (so many tasks), or of ``drain``, ``scan``, ``read`` (threads)."""
    done = subprocess.run(
        [binary(), mode, path, str(number)], stdout=subprocess.PIPE, text=True, check=True
    )
    return float(json.loads(done.stdout)["seconds"])


def cores() -> int:
    """Processors this process may use: what a parallel scan is given."""
    return len(os.sched_getaffinity(0))
