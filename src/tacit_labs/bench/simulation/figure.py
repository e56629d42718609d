"""The comparison of simulations as a figure: rounds per second, a panel per job."""

from __future__ import annotations

from typing import IO

from tacit_labs.bench.simulation.measured import Results
from tacit_labs.bench.simulation.peers.jobs import JOBS
from tacit_labs.bench.simulation.table import EXAMPLES

_OWN, _PEER = "#1b6ca8", "#b8b8b8"


def draw(results: Results, out: IO[bytes]) -> None:
    """Write, as PNG, bars of rounds per second, one for each side, with how much faster Tacit is."""
    from matplotlib.figure import Figure

    names = list(results.rounds)
    most = max(len(results.ordered(name)) for name in names)
    figure = Figure(figsize=(6.5 * len(names), 0.5 * most + 2.0), layout="constrained")
    for axis, name in zip(figure.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        rows = results.ordered(name)[::-1]
        values = [row.rounds_per_second for row in rows]
        own = [row.is_ours for row in rows]
        bars = axis.barh([row.title for row in rows], values, color=[_OWN if one else _PEER for one in own], height=0.7)
        labels = [
            f"{value:.3g}" + ("" if one else f"  (Tacit {row.faster_by:.1f}x)")
            for value, one, row in zip(values, own, rows, strict=True)
        ]
        axis.bar_label(bars, labels=labels, padding=4, fontsize=9)
        axis.set_xlim(0, max(values) * 1.3)
        axis.set_xlabel("rounds per second", fontsize=9)
        axis.set_title(f"{JOBS[name].title}\n{JOBS[name].words(EXAMPLES)}", fontsize=9)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
    machine = results.machine
    figure.suptitle(
        f"The 21,840-parameter CNN on MNIST, {machine.processor}, {machine.cores} cores, best of {results.repeats}",
        fontsize=10,
    )
    figure.savefig(out, format="png", dpi=130)
