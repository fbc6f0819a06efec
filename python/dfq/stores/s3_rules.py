"""What an answer of S3 means, and what is done about it: the one table of rules.

| meaning     | was it done?  | a write                  | a read or a list              |
|-------------|---------------|--------------------------|-------------------------------|
| done        | yes           |                          |                               |
| lost        | no            | Exists, Changed, Missing |                               |
| gone        | no            | Missing                  | None                          |
| not_now     | certainly not | again, then StoreBusy    | again, then StoreBusy         |
| unsure      | nobody knows  | StoreUnsure at once      | again, then QueueUnavailable  |
| unreached   | certainly not | again, then QueueUnavailable (both)                      |
| skewed      | certainly not | again with the server's time, then StoreRefused (both)   |
| refused     | certainly not | StoreRefused at once (both)                              |

A write whose answer is missing is never sent again from here: the second one could undo what
somebody else did after the first, or be beaten by it and report a loss that was a win.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from dfq.stores.s3_wire import Answer

Meaning = Literal["done", "lost", "gone", "not_now", "unsure", "unreached", "skewed", "refused"]
Kind = Literal["put", "get", "list", "delete"]

#: How often a request is sent in all, by what came of it; what is not here is sent once.
TRIES: Final[dict[Meaning, int]] = {"not_now": 6, "unsure": 3, "unreached": 3, "skewed": 2}
#: Waits between tries: a random part of this, doubled each time up to the cap.
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 2.0
#: No try begins later than this after the first.
PATIENCE_SECONDS: Final = 30.0

_CREDENTIALS = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile in ~/.aws"
_RENEW = "the credentials ran out; sign in again, or let the machine's role renew them"
_REGION = "it is in another region or has another address; add ?region=… or mend ?endpoint=…"


@dataclass(frozen=True)
class Rule:
    """The meaning of an answer, and for people what to do about it."""

    meaning: Meaning
    advice: str = ""


_BY_CODE: Final[dict[str, Rule]] = {
    # Another conditional write to the same key was under way; nobody may have won.
    "ConditionalRequestConflict": Rule("not_now"),
    "OperationAborted": Rule("not_now"),
    "SlowDown": Rule("not_now"),
    "ServiceUnavailable": Rule("not_now"),
    "Busy": Rule("not_now"),
    "TooManyRequests": Rule("not_now"),
    # The body did not arrive whole, so nothing was stored.
    "RequestTimeout": Rule("not_now"),
    "IncompleteBody": Rule("not_now"),
    "BadDigest": Rule("not_now"),
    "PreconditionFailed": Rule("lost"),
    "NoSuchKey": Rule("gone"),
    "RequestTimeTooSkewed": Rule("skewed", "set this machine's clock, for instance by NTP"),
    "NoSuchBucket": Rule("refused", "there is no such bucket; create it or mend its name"),
    "InvalidBucketName": Rule("refused", "no bucket can have this name; mend it"),
    "InvalidAccessKeyId": Rule("refused", f"the access key is unknown; {_CREDENTIALS}"),
    "SignatureDoesNotMatch": Rule("refused", f"the secret key is wrong; {_CREDENTIALS}"),
    "InvalidToken": Rule("refused", f"the session token is wrong; {_CREDENTIALS}"),
    "ExpiredToken": Rule("refused", _RENEW),
    "TokenRefreshRequired": Rule("refused", _RENEW),
    "PermanentRedirect": Rule("refused", _REGION),
    "TemporaryRedirect": Rule("refused", _REGION),
    "AuthorizationHeaderMalformed": Rule("refused", _REGION),
    "IllegalLocationConstraintException": Rule("refused", _REGION),
    "NotImplemented": Rule("refused", "this store can't do it; use one with conditional writes"),
    "AllAccessDisabled": Rule("refused", "the account is suspended; ask who owns it"),
}

_BY_STATUS: Final[dict[int, Rule]] = {
    404: Rule("gone"),
    409: Rule("not_now"),
    412: Rule("lost"),
    429: Rule("not_now"),
    # What stands between us and the store may say these after the store has done its part.
    500: Rule("unsure"),
    502: Rule("unsure"),
    503: Rule("unsure"),
    504: Rule("unsure"),
}

_RIGHTS: Final[dict[Kind, str]] = {
    "put": "s3:PutObject",
    "get": "s3:GetObject and s3:ListBucket",
    "list": "s3:ListBucket",
    "delete": "s3:DeleteObject",
}

_CODE = re.compile(rb"<Code>\s*([A-Za-z0-9.]{1,80})\s*</Code>")
_MESSAGE = re.compile(rb"<Message>([^<]{1,500})</Message>")


def judge(kind: Kind, answer: Answer) -> Rule:
    """What an answer means."""
    status = answer.status
    if 200 <= status < 300:
        return Rule("done")
    rule = _BY_CODE.get(code_of(answer)) or _BY_STATUS.get(status)
    if rule is not None:
        return rule
    if status in (401, 403):
        return Rule("refused", f"allow {_RIGHTS[kind]} to these credentials")
    if status in (301, 302, 307, 308):
        return Rule("refused", _region_advice(answer))
    if status >= 500:
        return Rule("unsure")
    return Rule("refused", "check that the endpoint is an S3 store")


def told(answer: Answer) -> str:
    """What the store itself said, for people."""
    code = code_of(answer)
    message = _MESSAGE.search(answer.body)
    said = message[1].decode(errors="replace").strip() if message else ""
    return " ".join(filter(None, (str(answer.status), code, f"({said})" if said else "")))


def code_of(answer: Answer) -> str:
    """The store's own name for the error, or nothing."""
    code = _CODE.search(answer.body)
    return code[1].decode() if code else ""


def _region_advice(answer: Answer) -> str:
    region = answer.header("x-amz-bucket-region")
    return f"the bucket is in {region}; add ?region={region}" if region else _REGION
