"""What an s3:// URL says.

``s3://bucket/prefix`` uses the usual AWS settings (environment, ~/.aws, roles). Parameters for
other stores: ``endpoint`` (its URL), ``region``, ``addressing`` (path or virtual), ``profile``
(in ~/.aws) and ``timeout`` (seconds to wait for an answer).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args
from urllib.parse import parse_qsl, urlsplit

from dfq.errors import DfqError, InvalidURL
from dfq.policy import nearest
from dfq.store import check_key

#: On a contended key some stores answer after seconds.
DEFAULT_TIMEOUT_SECONDS: Final = 20.0
_MAX_TIMEOUT_SECONDS = 300.0

_PARAMETERS = ("endpoint", "region", "addressing", "profile", "timeout")
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}", re.ASCII)
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
#: What may be a name and a password: all to the last @, for a secret may hold any character.
_SECRET = re.compile(r"\A([A-Za-z][A-Za-z0-9+.-]*://)?.*(?:@|%40)", re.DOTALL | re.ASCII)
Addressing = Literal["auto", "path", "virtual"]


@dataclass(frozen=True)
class S3Address:
    """A bucket, a prefix in it and how to reach it."""

    bucket: str
    #: Empty, or ends with a slash.
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    addressing: Addressing = "auto"
    profile: str | None = None
    timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS

    @property
    def url(self) -> str:
        """The URL without parameters, for people."""
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def without_secrets(text: str) -> str:
    """A URL to show, without what stands before an @: it may be a password."""
    return _SECRET.sub(r"\1…@", text)


def parse_address(url: str) -> S3Address:
    """Read an s3:// URL."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidURL(f"{without_secrets(url)!r} is no URL: {error}") from None
    if parts.scheme != "s3" or parts.fragment:
        raise InvalidURL(f"{without_secrets(url)!r} is no s3 URL; write s3://bucket/prefix")
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidURL(
            f"{without_secrets(url)!r} names no valid bucket; write s3://bucket/prefix, and "
            "credentials into the environment or ~/.aws, never into the URL"
        )
    given = _parameters(url, parts.query)
    return S3Address(
        bucket=parts.netloc,
        prefix=_prefix(url, parts.path),
        endpoint=_endpoint(url, given.get("endpoint")),
        region=_one_of(url, given, "region", _REGION),
        addressing=_addressing(url, given.get("addressing", "auto")),
        profile=given.get("profile") or None,
        timeout_seconds=_timeout(url, given.get("timeout")),
    )


def _parameters(url: str, query: str) -> dict[str, str]:
    given = dict(parse_qsl(query, keep_blank_values=True))
    for name in given:
        if name not in _PARAMETERS:
            raise InvalidURL(
                f"{without_secrets(url)!r} has an unknown parameter {without_secrets(name)!r}; "
                f"{nearest(name, list(_PARAMETERS))} There are {', '.join(_PARAMETERS)}."
            )
    return given


def _prefix(url: str, path: str) -> str:
    prefix = path.strip("/")
    if not prefix:
        return ""
    try:
        check_key(prefix)
    except DfqError:
        raise InvalidURL(
            f"{without_secrets(url)!r} has a prefix that can't be used; take letters, digits and "
            "any of ._=+@~- between single slashes"
        ) from None
    return f"{prefix}/"


def _endpoint(url: str, endpoint: str | None) -> str | None:
    if endpoint is None:
        return None
    try:
        parts = urlsplit(endpoint)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.query or "@" in parts.netloc:
        raise InvalidURL(
            f"{without_secrets(url)!r} has no valid endpoint; write it as in endpoint=http://127.0.0.1:8333"
        )
    return endpoint.rstrip("/")


def _one_of(url: str, given: dict[str, str], name: str, form: re.Pattern[str]) -> str | None:
    value = given.get(name)
    if value is not None and not form.fullmatch(value):
        raise InvalidURL(f"{without_secrets(url)!r} has no valid {name}: {value!r}")
    return value


def _addressing(url: str, value: str) -> Addressing:
    known: tuple[Addressing, ...] = get_args(Addressing)
    for addressing in known:
        if value == addressing:
            return addressing
    raise InvalidURL(f"{without_secrets(url)!r}: addressing is path or virtual, not {value!r}")


def _timeout(url: str, value: str | None) -> float:
    if value is None:
        return DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= _MAX_TIMEOUT_SECONDS:
        raise InvalidURL(
            f"{without_secrets(url)!r}: timeout is seconds, above 0 and at most "
            f"{_MAX_TIMEOUT_SECONDS:g}"
        )
    return seconds
