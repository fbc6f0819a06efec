"""moto's server, one request at a time. By itself it checks, then acts, and a store that lets two
writers win is refused."""

from __future__ import annotations

import threading
from typing import Any

from moto import server

_ONE = threading.Lock()


class InTurn(server.DomainDispatcherApplication):
    """Its application, entered by one thread after the other."""

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        with _ONE:
            return super().__call__(environ, start_response)


if __name__ == "__main__":
    server.DomainDispatcherApplication = InTurn  # type: ignore[misc]
    server.main()
