"""The picture in docs/: claim + ack per second, by queue and number of processes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benches.results import Row

_COLOURS = {1: "#9ecae1", 2: "#4292c6", 4: "#08519c"}


def plot_peers(rows: list[Row], ground: str, path: Path) -> None:
    """Bars on a logarithmic axis: the slowest and the fastest are four hundred times apart."""
    import matplotlib as mpl

    mpl.use("agg")
    # The same run draws the same file: no random ids, no date.
    mpl.rcParams["svg.hashsalt"] = "dfq"
    from matplotlib import pyplot

    height = 0.8 / len(_COLOURS)
    figure, axes = pyplot.subplots(figsize=(8.5, 0.55 * len(rows) + 1.4))
    names = [f"{row.name}\n{row.durability}" for row in rows]
    for index, (processes, colour) in enumerate(_COLOURS.items()):
        places = [place + (index - 1) * height for place in range(len(rows))]
        rates = [row.drains[processes] or 0 for row in rows]
        word = "process" if processes == 1 else "processes"
        axes.barh(places, rates, height, color=colour, label=f"{processes} {word}")
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    for label, row in zip(axes.get_yticklabels(), rows, strict=True):
        if row.name.startswith("dfq"):
            label.set_fontweight("bold")
    axes.invert_yaxis()
    axes.set_xscale("log")
    slowest = min(rate for row in rows for rate in row.drains.values() if rate)
    axes.set_xlim(left=10 ** math.floor(math.log10(slowest)))
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xlabel(f"claim + read + ack, tasks per second, on {ground}")
    axes.grid(axis="x", which="major", color="#dddddd")
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
