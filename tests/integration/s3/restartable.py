"""A server that can be stopped and started again: at the same address, with the same files."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

from tests import servers
from tests.servers import ACCESS_KEY, SECRET_KEY, Server, clean_environment, free_ports
from tests.servers.commands import seaweedfs

_PORTS = 12


class Restartable:
    """SeaweedFS, which keeps what it is given on disk."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(_PORTS)
        self._folder = folder
        self._command, _ = seaweedfs(servers._program, folder, ports, (ACCESS_KEY, SECRET_KEY))
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = ports
        self.server = Server("seaweedfs", f"http://127.0.0.1:{ports[0]}")

    def start(self) -> None:
        """Start it and wait until it serves."""
        with (self._folder / "log").open("ab") as output:
            self._process = subprocess.Popen(
                self._command,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=clean_environment() | {"TMPDIR": str(self._folder)},
                cwd=self._folder,
                start_new_session=True,
            )
        pause = threading.Event()
        said = "nothing"
        for _ in range(int(servers.START_SECONDS / 0.1)):
            if servers._listens(self.server.endpoint):
                said = servers.make_bucket(self.server.endpoint)
                if not said:
                    return
            pause.wait(0.1)
        raise AssertionError(f"the server did not come back: {said}")

    def stop(self) -> None:
        """Stop it; its files stay."""
        if self._process is not None:
            servers._stop(self._process)
            self._process = None
        for port in self._ports:
            # SeaweedFS puts these here whatever it is told, and leaves them.
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink(missing_ok=True)
