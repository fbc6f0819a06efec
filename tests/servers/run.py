"""Run a command beside an S3 server that is started for it: ``python -m tests.servers.run``.

    python -m tests.servers.run seaweedfs -- dfq demo {url}

``{url}`` stands for a bucket on that server; the server ends with the command.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.servers import clean_environment, start


def main(name: str, command: list[str]) -> int:
    """What the command exits with."""
    with (
        tempfile.TemporaryDirectory(prefix="dfq-server-") as folder,
        start(name, Path(folder)) as server,
    ):
        url = server.url("queues")
        print(f"{name} answers at {server.endpoint}", flush=True)
        ready = [part.replace("{url}", url) for part in command]
        status = subprocess.run(ready, env=clean_environment(), check=False).returncode
    print(f"{name} has ended, and its files are gone", flush=True)
    return status


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[3:]))
