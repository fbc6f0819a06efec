"""Results into an index: put before the ack, so that no completed task is without its records.

A task whose ack fails after that is delivered again and puts its records again; the newest of a
key counts, so they are there once. A worker that was away for longer than its lease puts nothing:
the lease is renewed right before. Should it be away between the two, its records are of the time
before that, so those of the next lease are newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dfq.errors import InvalidRecord

if TYPE_CHECKING:
    from dfq.compiler.index import Index


class Results:
    """The index that results go to."""

    def __init__(self, url: str) -> None:
        from dfq.compiler.index import Index

        self._index: Index = Index(url)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._index.url

    def rows(self, result: Any) -> list[list[str]]:
        """The records of a result: an object with the columns of the index, or a list of them."""
        if isinstance(result, dict):
            result = [result]
        if not isinstance(result, list | tuple):
            raise InvalidRecord(
                f"the result is {type(result).__name__}, not an object with the columns of "
                f"{self.url} or a list of them"
            )
        return self._index.rows(result)

    def put(self, rows: list[list[str]]) -> None:
        """Write them."""
        if rows:
            self._index.put_rows(rows)

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()
