"""What botocore knows: credentials, the endpoint of a bucket, the signer. Imported when used."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

from dfq.errors import InvalidConfig, InvalidURL, StoreRefused
from dfq.stores.s3_address import S3Address, without_secrets

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from botocore.session import Session

_DEFAULT_REGION = "us-east-1"
_EMPTY = sha256(b"").hexdigest()


@dataclass(frozen=True)
class Place:
    """Where requests for a bucket go."""

    scheme: str
    host: str
    port: int
    #: What stands before the key; with path addressing the bucket's name.
    path: str
    #: The certificates to trust; None for plain HTTP.
    certificates: str | None

    @cached_property
    def authority(self) -> str:
        """Host and port, as the Host header has them."""
        usual = {"http": 80, "https": 443}[self.scheme]
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == usual else f"{host}:{self.port}"

    @cached_property
    def origin(self) -> str:
        """Scheme, host and port: what a URL begins with."""
        return f"{self.scheme}://{self.authority}"


def open_account(address: S3Address) -> tuple[Place, Signer]:
    """Ask botocore where the bucket is and who we are."""
    try:
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        raise InvalidConfig(
            f"{address.url} needs boto3, which is not installed; pip install 'dfq[s3]'"
        ) from None
    try:
        session = Session(profile=address.profile)
        region = address.region or session.get_config_variable("region") or _DEFAULT_REGION
        place = _place(session, address, region)
        credentials = session.get_credentials()
    except (BotoCoreError, ValueError) as error:
        raise InvalidConfig(f"{address.url} can't be opened: {error}") from None
    if credentials is None:
        raise StoreRefused(
            f"no credentials for {address.url}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            "run `aws configure`, or give this machine a role"
        )
    return place, Signer(address.url, credentials, region)


class _Client(Protocol):
    """What is asked of botocore's client; its methods are made at run time."""

    def generate_presigned_url(self, operation: str, Params: dict[str, Any]) -> str: ...

    def close(self) -> None: ...


def _place(session: Session, address: S3Address, region: str) -> Place:
    from botocore import UNSIGNED
    from botocore.config import Config
    from botocore.httpsession import get_cert_path

    config = Config(signature_version=UNSIGNED, s3={"addressing_style": address.addressing})
    client = cast(
        "_Client",
        session.create_client(
            "s3", region_name=region, endpoint_url=address.endpoint, config=config
        ),
    )
    # The one question whose answer shows host and path as botocore would address them.
    url = client.generate_presigned_url(
        "get_object", Params={"Bucket": address.bucket, "Key": "key"}
    )
    client.close()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidURL(
            f"{address.url} leads to {without_secrets(url)!r}, which is no place on the web"
        )
    secure = parts.scheme == "https"
    trusted = session.get_config_variable("ca_bundle") or get_cert_path(True)
    return Place(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or (443 if secure else 80),
        path=parts.path.removesuffix("key"),
        certificates=trusted if secure else None,
    )


class Signer:
    """Signs requests (Signature Version 4) by botocore's rules, at the time it is told."""

    def __init__(self, url: str, credentials: Credentials, region: str) -> None:
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        self._url = url
        self._credentials = credentials
        self._region = region
        self._auth_of = S3SigV4Auth
        self._request_of = AWSRequest
        self._error = BotoCoreError

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return self._region

    def sign(
        self, method: str, url: str, headers: dict[str, str], body: bytes | str, seconds: float
    ) -> dict[str, str]:
        """The headers to send: those given, and what proves who sends them.

        In place of a body there may be its sha256 in hex.
        """
        try:
            # Credentials that are lent for a time are renewed in here.
            credentials = self._credentials.get_frozen_credentials()
        except self._error as error:
            raise StoreRefused(
                f"the credentials for {self._url} can't be renewed: {error}; check the role or "
                "sign in again"
            ) from None
        auth = self._auth_of(credentials, "s3", self._region)
        moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
        timestamp = moment.strftime("%Y%m%dT%H%M%SZ")
        headers["X-Amz-Date"] = timestamp
        if isinstance(body, bytes):
            body = sha256(body).hexdigest() if body else _EMPTY
        headers["X-Amz-Content-SHA256"] = body
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        # botocore's own add_auth() would take the machine's clock, which may be a day off.
        request = self._request_of(method, url, headers)
        request.context["timestamp"] = timestamp
        names = auth.signed_headers(auth.headers_to_sign(request))
        text = auth.string_to_sign(request, auth.canonical_request(request))
        signature = auth.signature(text, request)
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, "
            f"SignedHeaders={names}, Signature={signature}"
        )
        return headers
