"""The figures of the DP-SGD lab: accuracy and noise over epsilon, delta and iterations, on logarithmic axes."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.report import surfaces
from tacit.storage import write_atomically
from tacit_labs.lab_dpsgd.sweeps import Point, Way

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

_TITLES = {"epsilon": "epsilon", "delta": "delta", "iterations": "iterations"}
_STYLES: dict[Way, tuple[str, str, str, str]] = {  # told apart without colour too
    "normal": ("#555555", "^", ":", "normal: no privacy"),
    "lab": ("#d55e00", "s", "--", "the lab's advanced composition"),
    "tight": ("#0072b2", "o", "-", "tight accounting"),
}


def draw(points: Sequence[Point], folder: Path) -> tuple[Path, ...]:
    """Write a figure for each sweep into ``folder`` as PNG."""
    surfaces.check()
    paths = []
    for sweep in dict.fromkeys(point.sweep for point in points):
        path = folder / f"lab-{sweep}.png"
        data = io.BytesIO()
        figure([point for point in points if point.sweep == sweep]).savefig(data, format="png", dpi=150)
        write_atomically(path, data.getvalue(), advice="Choose another folder with --out.")
        paths.append(path)
    return tuple(paths)


def figure(points: Sequence[Point]) -> Figure:
    """Return one sweep: test accuracy with its spread over seeds, and the noise that each way of accounting adds."""
    from matplotlib.figure import Figure

    sweep = points[0].sweep
    drawing = Figure(figsize=(11, 4.6), layout="constrained")
    accuracy, noise = drawing.subplots(1, 2)
    for way, (colour, marker, line, label) in _STYLES.items():
        own = sorted((point for point in points if point.way == way), key=lambda point: point.value)
        if not own:
            continue
        places = [point.value for point in own]
        means = [100 * point.mean for point in own]
        spreads = [100 * point.spread for point in own]
        accuracy.plot(places, means, color=colour, marker=marker, linestyle=line, label=label)
        low = [mean - spread for mean, spread in zip(means, spreads, strict=True)]
        high = [min(mean + spread, 100.0) for mean, spread in zip(means, spreads, strict=True)]
        accuracy.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
        added = [point.noise_multiplier for point in own]
        if all(value is not None for value in added):
            noise.plot(places, added, color=colour, marker=marker, linestyle=line, label=label)
    noise.set_yscale("log")
    accuracy.set_ylabel("test accuracy, % (± one deviation)")
    noise.set_ylabel("noise multiplier of a step")
    for panel in (accuracy, noise):
        _finish(panel, _TITLES[sweep])
    accuracy.set_title(f"Accuracy over {_TITLES[sweep]}")
    noise.set_title("Noise for the same budget")
    drawing.suptitle(_fixed(points[0]))
    return drawing


def table(points: Sequence[Point]) -> Table:
    """Return the points for the terminal: a line per setting, a column per way."""
    from rich.table import Table

    shown = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("sweep", "value", "normal", "lab", "tight", "noise: lab", "tight"):
        shown.add_column(name, justify="left" if name == "sweep" else "right", header_style="dim", no_wrap=True)
    for sweep, value in dict.fromkeys((point.sweep, point.value) for point in points):
        by_way = {point.way: point for point in points if (point.sweep, point.value) == (sweep, value)}
        cells = [f"{100 * by_way[way].mean:.1f} ± {100 * by_way[way].spread:.1f}%" for way in _STYLES]
        noises = [f"{by_way[way].noise_multiplier or 0:.4g}" for way in _STYLES if way != "normal"]
        shown.add_row(sweep, f"{value:g}", *cells, *noises)
    return shown


def _finish(panel: Axes, name: str) -> None:
    panel.set_xscale("log")
    panel.set_xlabel(f"{name} (log scale)")
    panel.grid(color="#00000022")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    panel.legend(frameon=False)


def _fixed(point: Point) -> str:
    parts = {
        "epsilon": f"epsilon {point.epsilon:g}",
        "delta": f"delta {point.delta:g}",
        "iterations": f"{point.iterations} iterations",
    }
    rest = ", ".join(words for name, words in parts.items() if name != point.sweep)
    return f"Private logistic regression, breast cancer: {rest}, {len(point.each)} seeds"
