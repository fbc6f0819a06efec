"""Which engines and stores the conformance tests run on: all, or those that somebody chose."""

from __future__ import annotations

import os

#: Such as ``file,moto``: whatever else would be collected for nothing, where that takes minutes.
_ONLY = os.environ.get("DFQ_TEST_ON")


def chosen(names):
    """Those of the names that are wanted; "s3 on moto" is for moto."""
    if _ONLY is None:
        return list(names)
    return [name for name in names if name.rpartition(" ")[2] in _ONLY.split(",")]
