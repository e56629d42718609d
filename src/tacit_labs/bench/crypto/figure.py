"""The comparison of encryptions as a figure: time and bytes, on logarithmic axes."""

from __future__ import annotations

from typing import IO

from tacit_labs.bench.crypto.measured import Results

_OWN, _PEER = "#1b6ca8", "#b8b8b8"


def draw(results: Results, out: IO[bytes]) -> None:
    """Write, as PNG, bars of encryption, decryption and bytes, one line for each way to encrypt."""
    from matplotlib.figure import Figure

    rows = [row for row in results.rows if "pool" not in row.name][::-1]
    scale = 1e6 / results.floats
    panels = [
        ("encryption, microseconds per float", [row.encrypt * scale for row in rows]),
        ("decryption, microseconds per float", [row.decrypt * scale for row in rows]),
        ("bytes per float", [row.bytes for row in rows]),
    ]
    figure = Figure(figsize=(13, 0.36 * len(rows) + 1.8), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True)
    names = [row.title for row in rows]
    colours = [_OWN if row.is_ours else _PEER for row in rows]
    for axis, (title, values) in zip(axes, panels, strict=True):
        bars = axis.barh(names, values, color=colours, height=0.7)
        axis.bar_label(bars, labels=[_short(value) for value in values], padding=3, fontsize=8)
        axis.set_xscale("log")
        axis.set_xlim(min(values) / 2, max(values) * 6)
        axis.set_title(title, fontsize=10)
        axis.spines[["top", "right", "left"]].set_visible(False)
        axis.tick_params(axis="y", length=0)
        axis.grid(axis="x", which="major", color="#e6e6e6", linewidth=0.6)
        axis.set_axisbelow(True)
    figure.suptitle(
        f"{results.floats:,} floats under Paillier keys of {results.key_bits} bits (TenSEAL: lattices), "
        f"one thread, {results.machine.processor}   * sampled and scaled",
        fontsize=10,
    )
    figure.savefig(out, format="png", dpi=130)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
