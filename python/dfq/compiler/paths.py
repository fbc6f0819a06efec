"""Where things are in an index, as keys of its store."""

from __future__ import annotations

import re
from typing import Final, Literal

from dfq.ambient import Chance, Clock, new_id
from dfq.errors import DfqError
from dfq.store import check_key

DESCRIPTOR: Final = "datapackage.json"
MANIFEST: Final = "manifest.json"
INBOX: Final = "inbox/"
SHARDS: Final = "shards/"
QUARANTINE: Final = "quarantine/"

SHARD_IDS: Final = tuple(f"{number:02x}" for number in range(256))

Kind = Literal["waiting", "flat", "shard", "lock", "odd", "other"]

_PLACE = re.compile(r"(?:inbox/(?P<inbox>[0-9a-f]{2})/|(?P<flat>(?:inbox/)?))[^/]+\.usv")
_SHARD = re.compile(r"shards/([0-9a-f]{2})\.(usv|lock)", re.ASCII)
#: What dfq itself names files in an inbox: such a name is written once, and never again with
#: other content.
_OWN = re.compile(
    r"inbox/[0-9a-f]{2}/(?:[0-9a-hjkmnp-tv-z]{26}-[0-9a-f]{16}|r-[0-9a-f]{32})\.usv", re.ASCII
)


def shard_key(shard: str) -> str:
    """The shard itself."""
    return f"{SHARDS}{shard}.usv"


def lock_key(shard: str) -> str:
    """The advisory lock on a shard."""
    return f"{SHARDS}{shard}.lock"


def inbox_prefix(shard: str) -> str:
    """Where the files wait that belong into a shard."""
    return f"{INBOX}{shard}/"


def new_inbox_key(shard: str, clock: Clock, chance: Chance) -> str:
    """A name that nobody has had and nobody will have."""
    return f"{inbox_prefix(shard)}{new_id(clock, chance)}-{chance.bits(64):016x}.usv"


def refiled_key(shard: str, sha256: str) -> str:
    """The name of what was moved into this inbox: the same content has the same name."""
    return f"{inbox_prefix(shard)}r-{sha256[:32]}.usv"


def is_own(key: str) -> bool:
    """Whether dfq gave this name, so that it always means the same bytes."""
    return _OWN.fullmatch(key) is not None


def kind_of(key: str) -> tuple[Kind, str]:
    """What stands under a key, and for which shard."""
    match = _SHARD.fullmatch(key)
    if match:
        return ("shard" if match[2] == "usv" else "lock"), match[1]
    match = _PLACE.fullmatch(key)
    if match and _is_usable(key):
        return ("flat", "") if match["inbox"] is None else ("waiting", match["inbox"])
    if match or key.startswith(INBOX):
        return "odd", ""
    return "other", ""


def _is_usable(key: str) -> bool:
    try:
        check_key(key)
    except DfqError:
        return False
    return True
