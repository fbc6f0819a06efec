"""The same tasks for everybody: a number to count it by, padded to 300 bytes of JSON."""

from __future__ import annotations

import json
from typing import Any

PAYLOAD_BYTES = 300


def payload(number: int) -> dict[str, Any]:
    """The task with this number."""
    bare = {"n": number, "url": f"https://example.org/item/{number}", "note": ""}
    padding = PAYLOAD_BYTES - len(json.dumps(bare))
    return {**bare, "note": "x" * padding}


def payloads(count: int) -> list[dict[str, Any]]:
    """Tasks 0 to count - 1."""
    return [payload(number) for number in range(count)]
