"""A store in a bucket: S3, or anything that speaks its protocol with conditional writes.

botocore finds the credentials and the endpoint and signs; the requests themselves go out over
plain HTTP connections, which costs a fraction of what its clients do. What an answer means is
written in :mod:`dfq.stores.s3_rules`.
"""

from __future__ import annotations

import base64
import hashlib
import re

# Within a store `list` is a verb.
from builtins import list as List
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from dfq import _core
from dfq.ambient import SYSTEM_CHANCE, SYSTEM_CLOCK, Chance, Clock
from dfq.errors import QueueUnavailable, StoreBusy, StoreRefused
from dfq.store import (
    MAX_BODY_BYTES,
    MAX_PAGE,
    BodyTooLarge,
    Changed,
    Exists,
    Missing,
    Object,
    Page,
    RequestCounter,
    Stored,
    check_body,
    check_key,
    check_limit,
    check_prefix,
)
from dfq.stores.files import FileBody, new_file, open_file, remove
from dfq.stores.s3_address import S3Address, parse_address
from dfq.stores.s3_rules import TRIES
from dfq.stores.server_clock import seconds_of

if TYPE_CHECKING:
    from dfq.stores.s3_wire import Answer

#: No listing begins with more empty pages than this.
_EMPTY_PAGES: Final = 100

_DELETE_ERROR = re.compile(
    rb"<Error>(?:(?!</Error>).)*?<Code>([^<]*)</Code>(?:(?!</Error>).)*?</Error>", re.DOTALL
)


class S3Store:
    """Bodies in a bucket, under a prefix."""

    def __init__(
        self,
        address: str | S3Address,
        *,
        keep_connections: int = 10,
        conditional_delete: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        chance: Chance = SYSTEM_CHANCE,
    ) -> None:
        # Only who opens a bucket pays for the clients of one.
        from dfq.stores.s3_account import open_account
        from dfq.stores.s3_requests import Requests
        from dfq.stores.s3_wire import Wire

        self.address = parse_address(address) if isinstance(address, str) else address
        self.url = self.address.url
        self.conditional_delete = conditional_delete
        place, signer = open_account(self.address)
        #: The place that a verdict about this store is remembered under.
        self.endpoint = place.origin
        wire = Wire(
            place,
            timeout_seconds=self.address.timeout_seconds,
            keep_connections=keep_connections,
            clock=clock,
        )
        self._requests = Requests(self.url, place, signer, wire, clock=clock, chance=chance)
        self._prefix = self.address.prefix

    @property
    def requests(self) -> RequestCounter:
        """The requests sent so far."""
        return self._requests.counter

    def create(self, key: str, body: bytes) -> str:
        """Store a body under a new key (PUT If-None-Match: *)."""
        return self._create(key, check_body(key, body))

    def replace(self, key: str, body: bytes, etag: str) -> str:
        """Store a body in place of the version named (PUT If-Match)."""
        return self._replace(key, check_body(key, body), etag)

    def put(self, key: str, body: bytes) -> str:
        """Store a body whatever was there."""
        answer, meaning = self._put(key, check_body(key, body), {})
        return self._written(key, answer, meaning)

    def read(self, key: str) -> Object | None:
        """The object, or None."""
        answer, meaning = self._requests.send("get", "GET", self._prefix + check_key(key))
        if meaning != "done":
            return None
        if answer.too_large:
            raise BodyTooLarge(f"{self.url}/{key} has more than {MAX_BODY_BYTES:,} bytes")
        modified = seconds_of(answer.header("Last-Modified") or "")
        if modified is None:
            raise self._odd(f"tells no Last-Modified of {key}")
        return Object(answer.body, self._etag(key, answer), modified)

    def fetch(self, key: str, path: str) -> Stored | None:
        """Copy an object into a new file."""
        with new_file(path) as file:
            answer, meaning = self._requests.send(
                "get", "GET", self._prefix + check_key(key), into=file
            )
            if meaning == "done":
                modified = seconds_of(answer.header("Last-Modified") or "")
                if modified is None:
                    raise self._odd(f"tells no Last-Modified of {key}")
                return Stored(key, self._etag(key, answer), modified, file.tell())
        remove(path)
        return None

    def create_from(self, key: str, path: str) -> str:
        """Store a file's bytes under a new key (one PUT: 5 GB at most)."""
        with open_file(path) as file:
            return self._create(key, FileBody(file))

    def replace_from(self, key: str, path: str, etag: str) -> str:
        """Store a file's bytes in place of the version named."""
        with open_file(path) as file:
            return self._replace(key, FileBody(file), etag)

    def list(self, prefix: str, after: str = "", limit: int = MAX_PAGE) -> Page:
        """The keys with this prefix after that key."""
        start = self._prefix + check_prefix(prefix)
        query = f"list-type=2&max-keys={check_limit(limit)}&prefix={quote(start, safe='')}"
        place = f"&start-after={quote(self._prefix + after, safe='')}" if after else ""
        for _ in range(_EMPTY_PAGES):
            rows, is_truncated, token = self._page(query + place, start)
            if rows or not is_truncated:
                entries = tuple(map(Stored._make, rows))
                return Page(entries, entries[-1].key if is_truncated else None)
            # A page may be empty before the end; where it goes on only the store knows.
            if not token:
                break
            place = f"&continuation-token={quote(token, safe='')}"
        raise QueueUnavailable(
            f"{self.url}: the listing of {start or 'the bucket'} has empty pages and no end; "
            "check that the endpoint is an S3 store, or try again"
        )

    def _page(
        self, query: str, start: str
    ) -> tuple[List[tuple[str, str, float, int]], bool, str | None]:
        """One page as the store gives it, and where it says that the next one begins."""
        wrong = ""
        for _ in range(TRIES["unsure"]):
            answer, meaning = self._requests.send("list", "GET", "", query=query)
            if meaning != "done":
                raise self._odd("has no listing")
            try:
                return _core.parse_listing(answer.body, self._prefix)
            except ValueError as error:
                # A page cut on its way looks like this; the next one may be whole.
                wrong = str(error)
        raise QueueUnavailable(
            f"{self.url}: the listing of {start or 'the bucket'} is damaged: {wrong}; check what "
            "stands between this machine and the store, or try again"
        )

    def delete(self, key: str, etag: str | None = None) -> bool:
        """Delete a key, or only the version named (DELETE If-Match)."""
        headers = {}
        if etag is not None:
            if not self.conditional_delete:
                raise StoreRefused(
                    f"{self.url} has no conditional delete, so {key} was not deleted; "
                    "delete it without an ETag once nobody else can write it"
                )
            headers["If-Match"] = f'"{etag}"'
        path = self._prefix + check_key(key)
        _, meaning = self._requests.send("delete", "DELETE", path, headers=headers)
        if meaning == "lost":
            raise Changed(key)
        return meaning == "done"

    def delete_many(self, keys: Iterable[str]) -> None:
        """Delete keys, a thousand with one request."""
        wanted = [check_key(key) for key in keys]
        for start in range(0, len(wanted), MAX_PAGE):
            self._delete_batch(wanted[start : start + MAX_PAGE])

    def now(self) -> float:
        """The server's clock."""
        return self._requests.ask_time()

    def close(self) -> None:
        """Close the connections."""
        self._requests.close()

    def _create(self, key: str, body: bytes | FileBody) -> str:
        answer, meaning = self._put(key, body, {"If-None-Match": "*"})
        if meaning == "lost":
            raise Exists(key)
        return self._written(key, answer, meaning)

    def _replace(self, key: str, body: bytes | FileBody, etag: str) -> str:
        answer, meaning = self._put(key, body, {"If-Match": f'"{etag}"'})
        if meaning == "lost":
            raise Changed(key)
        if meaning == "gone":
            raise Missing(key)
        return self._written(key, answer, meaning)

    def _put(self, key: str, body: bytes | FileBody, headers: dict[str, str]) -> tuple[Answer, str]:
        path = self._prefix + check_key(key)
        return self._requests.send("put", "PUT", path, headers=headers, body=body)

    def _written(self, key: str, answer: Answer, meaning: str) -> str:
        if meaning != "done":
            raise self._odd(f"answers {answer.status} to writing {key}")
        return self._etag(key, answer)

    def _etag(self, key: str, answer: Answer) -> str:
        etag = answer.header("ETag")
        if not etag:
            raise self._odd(f"tells no ETag of {key}")
        return etag.strip('"')

    def _odd(self, what: str) -> StoreRefused:
        return StoreRefused(
            f"{self.url} {what}, as S3 would not; check that {self.endpoint} is an S3 store and "
            "that the bucket is there"
        )

    def _delete_batch(self, keys: List[str]) -> None:
        # Keys are checked: nothing in them needs escaping.
        objects = "".join(f"<Object><Key>{self._prefix}{key}</Key></Object>" for key in keys)
        body = f"<Delete><Quiet>true</Quiet>{objects}</Delete>".encode()
        digest = base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
        headers = {"Content-MD5": digest, "Content-Type": "application/xml"}
        answer, meaning = self._requests.send(
            "delete", "POST", "", query="delete=", headers=headers, body=body
        )
        if meaning != "done":
            raise self._odd("does not delete several keys at once")
        codes = {match[1].decode(errors="replace") for match in _DELETE_ERROR.finditer(answer.body)}
        codes.discard("NoSuchKey")
        if "AccessDenied" in codes:
            raise StoreRefused(
                f"{self.url}: some of {len(keys)} keys, {keys[0]} first, were not deleted: "
                "AccessDenied; allow s3:DeleteObject to these credentials"
            )
        if codes:
            raise StoreBusy(
                f"{self.url}: some of {len(keys)} keys, {keys[0]} first, were not deleted: "
                f"{', '.join(sorted(codes))}; try again"
            )
