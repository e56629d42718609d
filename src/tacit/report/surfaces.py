"""A sweep's grid: accuracy and epsilon as heat maps, 3-D surfaces and lines."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError
from tacit.report.words import epsilon_text, value_text
from tacit.runs.grid import Axis
from tacit.runs.sweep import Cell, Row, cells
from tacit.storage import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {
    "dp.clip": "clip bound C (dp.clip)",
    "dp.noise": "noise multiplier z (dp.noise)",
    "dp.epsilon": "budget epsilon (dp.epsilon)",
    "dp.delta": "delta (dp.delta)",
    "federate.rounds": "rounds",
    "federate.clients": "clients",
    "federate.per_round": "clients a round",
    "federate.drop": "drop-outs, share of clients",
    "optimizer.lr": "clients' learning rate (optimizer.lr)",
    "server.lr": "server's learning rate (server.lr)",
    "train.batch_size": "batch size, examples",
    "train.local_epochs": "local epochs",
}
_MISSING = "#d9d9d9"
_PANELS = 4  # heat maps of a sweep of three or more axes
_DOTS = 100  # points that a surface marks; more would hide it


@dataclass(frozen=True, kw_only=True)
class Measure:
    """What a figure shows of a point."""

    field: str
    title: str
    label: str
    scale: float = 1.0
    colours: str = "viridis"
    decades: bool = False  # whether a logarithmic scale suits it where it spans a factor of ten


TEST = Measure(field="test_accuracy", title="Test accuracy", label="test accuracy, %", scale=100)
TRAIN = Measure(field="train_accuracy", title="Training accuracy", label="training accuracy, %", scale=100)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """The figures of a sweep, and what was left out of them."""

    paths: tuple[Path, ...]
    notes: tuple[str, ...]


def check() -> None:
    """Raise ConfigError where figures can't be drawn, before any work is lost to it."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            "Figures need matplotlib, which is not installed. Run: pip install 'tacit[plot]'. "
            "Or leave them out with --no-figures."
        ) from error


def draw(rows: Sequence[Row], axes: Sequence[Axis], folder: Path) -> Drawn:
    """Write the figures that suit the number of axes into ``folder`` as PNG; an axis of one value is not drawn."""
    check()
    points = cells(rows)
    free = [axis for axis in axes if len(axis.values) > 1]
    accuracies = [measure for measure in (TEST, TRAIN) if _measured(points, measure)]
    epsilon = epsilon_measure(points)
    groups = {"accuracy": accuracies, "epsilon": [epsilon] if _measured(points, epsilon) else []}
    figures: dict[str, Figure] = {}
    notes: list[str] = []
    if not free:
        notes.append("The sweep has one point; there is nothing to draw.")
    for name, measures in groups.items() if free else ():
        if not measures:
            continue
        if len(free) == 1:
            figures[f"{name}-line"] = lines(points, free[0], measures)
        elif len(free) == 2:
            figures[f"{name}-heat"] = heat_maps(points, free, measures)
            if all(_numeric(axis) for axis in free):
                figures[f"{name}-surface"] = surfaces(points, free, measures)
        else:
            figures[f"{name}-heat"] = slices(points, free, measures[0])
    if len(free) == 2 and not all(_numeric(axis) for axis in free):
        notes.append("No 3-D surface was drawn: an axis has values that are not numbers.")
    if any(not cell.runs or cell.epsilon == math.inf for cell in points):
        notes.append("A point that failed, or whose epsilon is infinite, is grey in a heat map and missing elsewhere.")
    further = math.prod(len(axis.values) for axis in free[2:])
    if further > 1:
        shown = f"the first {_PANELS} of {further}" if further > _PANELS else f"all {further}"
        keys = ", ".join(axis.key for axis in free[2:])
        notes.append(f"The heat maps are over {free[0].key} and {free[1].key}, {shown} values of {keys}.")
    paths = []
    for name, drawing in figures.items():
        paths.append(folder / f"{name}.png")
        data = io.BytesIO()
        drawing.savefig(data, format="png", dpi=150)
        write_atomically(paths[-1], data.getvalue(), advice="Choose another folder with --out.")
    return Drawn(paths=tuple(paths), notes=tuple(notes))


def epsilon_measure(points: Sequence[Cell]) -> Measure:
    """Return epsilon as a measure, with its delta where all points share one."""
    deltas = {cell.delta for cell in points if cell.delta is not None}
    at = f" at delta {deltas.pop():g}" if len(deltas) == 1 else ""
    return Measure(field="epsilon", title=f"Epsilon{at}", label=f"epsilon{at}", colours="cividis", decades=True)


def heat_maps(points: Sequence[Cell], axes: Sequence[Axis], measures: Sequence[Measure]) -> Figure:
    """Return a heat map for each measure over two axes: the first upwards, the second to the right."""
    grids = [_grid(points, axes, measure) for measure in measures]
    return _panels(axes, grids, measures, [measure.title for measure in measures])


def slices(points: Sequence[Cell], axes: Sequence[Axis], measure: Measure) -> Figure:
    """Return heat maps of one measure over the first two axes, one for each value of the others (four at most)."""
    further = axes[2:]
    grids, titles = [], []
    for values in list(product(*(axis.values for axis in further)))[:_PANELS]:
        fixed = dict(zip((axis.key for axis in further), values, strict=True))
        chosen = [cell for cell in points if all(cell.values[key] == value for key, value in fixed.items())]
        grids.append(_grid(chosen, axes[:2], measure))
        titles.append(f"{measure.title}\n" + ", ".join(f"{key}={value_text(value)}" for key, value in fixed.items()))
    return _panels(axes[:2], grids, [measure] * len(grids), titles)


def surfaces(points: Sequence[Cell], axes: Sequence[Axis], measures: Sequence[Measure]) -> Figure:
    """Return a 3-D surface for each measure over two axes of numbers; a point that failed leaves a hole."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    drawing = Figure(figsize=(6.6 * len(measures), 5.8))
    drawing.subplots_adjust(left=0.02, right=0.93 if len(measures) > 1 else 0.88, bottom=0.06, top=0.93, wspace=0.12)
    places = [_places(axis) for axis in axes]
    across, along = np.meshgrid(places[1], places[0])
    for number, measure in enumerate(measures, start=1):
        grid = _grid(points, axes, measure)
        finite = np.ma.masked_invalid(grid)
        logarithmic = _on_logarithms(measure, grid)
        heights = np.ma.log10(finite) if logarithmic else finite
        panel: Any = drawing.add_subplot(1, len(measures), number, projection="3d")
        low, high = float(heights.min()), float(heights.max())
        high += 1e-9 if low == high else 0.0
        panel.plot_surface(
            across,
            along,
            heights.filled(np.nan),
            cmap=measure.colours,
            vmin=low,
            vmax=high,
            rstride=1,
            cstride=1,
            edgecolor="#00000055",
            linewidth=0.5,
        )
        if grid.size <= _DOTS:
            seen = ~np.ma.getmaskarray(heights)
            panel.scatter(across[seen], along[seen], heights[seen].data, color="black", s=9, depthshade=False)
        for axis, scale, place in zip(axes, (panel.yaxis, panel.xaxis), places, strict=True):
            few = _few(len(axis.values), 6)
            scale.set_ticks([place[index] for index in few], [f"{axis.values[index]:.3g}" for index in few])
        panel.set_xlabel(_title(axes[1]), labelpad=12)
        panel.set_ylabel(_title(axes[0]), labelpad=12)
        panel.set_zlabel(measure.label + (" (log scale)" if logarithmic else ""), labelpad=12)
        panel.tick_params(axis="z", pad=7)
        panel.zaxis.set_major_locator(MaxNLocator(nbins=6))
        if logarithmic:
            panel.zaxis.set_major_formatter(FuncFormatter(lambda height, _: epsilon_text(10**height)))
        panel.set_title(measure.title)
        # Seen from the side of the low corner, so that what lies behind is higher where it can be.
        panel.view_init(elev=25, azim=_view(heights))
    return drawing


def lines(points: Sequence[Cell], axis: Axis, measures: Sequence[Measure]) -> Figure:
    """Return the measures over one axis, as lines with markers."""
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(7, 4.6), layout="constrained")
    _pad(drawing)
    panel = drawing.subplots()
    numeric = _numeric(axis)
    places: Sequence[Any] = axis.values if numeric else range(len(axis.values))
    styles = (("#0072b2", "o", "-"), ("#d55e00", "s", "--"))  # told apart without colour too
    for measure, (colour, marker, style) in zip(measures, styles, strict=False):
        heights = _grid(points, [axis], measure)
        heights[np.isinf(heights)] = np.nan
        panel.plot(places, heights, color=colour, marker=marker, linestyle=style, label=measure.title)
        if _on_logarithms(measure, heights):
            panel.set_yscale("log")
    if not numeric:
        panel.set_xticks(places, [value_text(value) for value in axis.values])
    elif _logarithmic(axis):
        panel.set_xscale("log")
    elif len(axis.values) <= 10:
        panel.set_xticks(places, [value_text(value) for value in axis.values])
    panel.set_xlabel(_title(axis))
    panel.set_ylabel(measures[0].label if len(measures) == 1 else "accuracy, %")
    panel.grid(color="#00000022")
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    if len(measures) > 1:
        panel.legend(frameon=False)
    return drawing


def _panels(
    axes: Sequence[Axis], grids: Sequence[NDArray[np.float64]], measures: Sequence[Measure], titles: Sequence[str]
) -> Figure:
    """Return heat maps side by side, four as two by two."""
    from matplotlib.figure import Figure

    columns = 2 if len(grids) > 1 else 1
    height, width = grids[0].shape
    size = (1.6 + min(6.5, max(4.2, 0.72 * width)), 1.3 + min(6.0, max(3.0, 0.5 * height)))
    lines_of_panels = -(-len(grids) // columns)
    drawing = Figure(figsize=(columns * size[0], lines_of_panels * size[1]), layout="constrained")
    _pad(drawing)
    panels = drawing.subplots(lines_of_panels, columns, squeeze=False).flat
    shared = grids if len({measure.field for measure in measures}) == 1 else None
    for panel, grid, measure, title in zip(panels, grids, measures, titles, strict=False):
        _heat(panel, grid, axes, measure, scale=np.concatenate(shared) if shared is not None else grid)
        panel.set_title(title)
    for empty in list(drawing.axes)[len(grids) : lines_of_panels * columns]:
        empty.set_axis_off()
    return drawing


def _pad(drawing: Figure) -> None:
    """Keep the words of a figure off its edges."""
    engine: Any = drawing.get_layout_engine()
    engine.set(w_pad=0.12, h_pad=0.12)


def _heat(
    panel: Axes, grid: NDArray[np.float64], axes: Sequence[Axis], measure: Measure, *, scale: NDArray[np.float64]
) -> None:
    """Draw one heat map; ``scale`` are the numbers that its colours span."""
    from matplotlib.colors import LogNorm, Normalize

    known = scale[np.isfinite(scale)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    logarithmic = _on_logarithms(measure, scale)
    norm = (LogNorm if logarithmic else Normalize)(low, high if high > low else low + 1e-9)
    picture = panel.imshow(np.ma.masked_invalid(grid), origin="lower", aspect="auto", cmap=measure.colours, norm=norm)
    panel.set_facecolor(_MISSING)
    for axis, place in ((axes[1], panel.set_xticks), (axes[0], panel.set_yticks)):
        few = _few(len(axis.values), 10)
        place(few, [value_text(axis.values[index]) for index in few])
    if max(len(value_text(value)) for value in axes[1].values) > 5:
        panel.tick_params(axis="x", rotation=30)
    panel.set_xlabel(_title(axes[1]))
    panel.set_ylabel(_title(axes[0]))
    bar = panel.figure.colorbar(picture, ax=panel)
    bar.set_label(measure.label + (" (log scale)" if logarithmic else ""))
    if grid.shape[0] > 12 or grid.shape[1] > 9:
        return  # numbers would not fit
    for (row, column), value in np.ndenumerate(grid):
        text = "failed" if math.isnan(value) else f"{value:.1f}" if measure.scale == 100 else epsilon_text(value)
        dark = math.isfinite(value) and _luminance(picture.cmap(norm(value))) < 0.18
        size = 9 if max(grid.shape) <= 7 else 7.5
        panel.text(column, row, text, ha="center", va="center", fontsize=size, color="white" if dark else "black")


def _grid(points: Sequence[Cell], axes: Sequence[Axis], measure: Measure) -> NDArray[np.float64]:
    """Return the measure by the axes' values; NaN where a point has none."""
    grid = np.full([len(axis.values) for axis in axes], np.nan)
    index = [{repr(value): place for place, value in enumerate(axis.values)} for axis in axes]
    for cell in points:
        value = getattr(cell, measure.field)
        if value is not None:
            where = tuple(places[repr(cell.values[axis.key])] for places, axis in zip(index, axes, strict=True))
            grid[where] = value * measure.scale
    return grid


def _luminance(colour: Sequence[float]) -> float:
    """Return the relative luminance of an RGB colour (WCAG 2); black and white stand out equally at 0.18."""
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3])
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _measured(points: Sequence[Cell], measure: Measure) -> bool:
    values = (getattr(cell, measure.field) for cell in points)
    return any(value is not None and math.isfinite(value) for value in values)


def _on_logarithms(measure: Measure, values: NDArray[np.float64]) -> bool:
    known = values[np.isfinite(values)]
    return measure.decades and bool(known.size) and float(known.max()) > 10 * float(known.min()) > 0


def _numeric(axis: Axis) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in axis.values)


def _logarithmic(axis: Axis) -> bool:
    """Return whether an axis of numbers is spaced by factors rather than by distances."""
    values = np.sort(np.array(axis.values, dtype=float))
    if len(values) < 3 or values[0] <= 0:
        return False
    steps, factors = np.diff(values), np.diff(np.log(values))
    return bool(np.ptp(factors) / factors.mean() < np.ptp(steps) / steps.mean())


def _places(axis: Axis) -> NDArray[np.float64]:
    """Return where the values of an axis stand: at their numbers, or at the numbers' logarithms."""
    values = np.array(axis.values, dtype=float)
    return np.log10(values) if _logarithmic(axis) else values


def _view(heights: Any) -> float:
    """Return the angle from which the lowest corner of a surface is in front."""
    corners = {-135: (0, 0), -45: (0, -1), 45: (-1, -1), 135: (-1, 0)}
    filled = heights.filled(heights.max())
    return min(corners, key=lambda angle: filled[corners[angle]]) + 10.0


def _few(total: int, most: int) -> list[int]:
    """Return the places of at most ``most`` of ``total`` values, evenly spread from the first."""
    return list(range(0, total, -(-total // most)))


def _title(axis: Axis) -> str:
    return _TITLES.get(axis.key, axis.key)
