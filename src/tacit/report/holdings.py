"""Who holds what: a split of a data set as a table, as blocks in the terminal, and as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tacit.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderResult

_LEVELS = " ·░▒▓█"  # from none to the most; told apart without colour
_ASCII_LEVELS = " .:+x#"
_STEPS = (0.25, 0.75, 1.5, 3.0)  # multiples of an even share at which a block gets darker
_SUFFIXES = (".png", ".svg", ".pdf")
_QUANTILES = (0, 25, 50, 75, 100)


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """How many examples of each class each client holds."""

    counts: NDArray[np.int64]  # (clients, classes)
    names: tuple[str, ...]  # of the clients

    @classmethod
    def of(
        cls,
        shares: Sequence[NDArray[np.int64]],
        labels: NDArray[np.int64],
        *,
        classes: int,
        names: Sequence[str] | None = None,
    ) -> Holdings:
        """Count the classes among each client's rows.

        >>> Holdings.of([np.array([0, 1]), np.array([2])], np.array([1, 1, 0]), classes=2).counts.tolist()
        [[0, 2], [1, 0]]
        """
        owner = np.repeat(np.arange(len(shares)), [len(rows) for rows in shares])
        rows = np.concatenate(shares) if len(shares) else np.empty(0, dtype=np.int64)
        counts = np.bincount(owner * classes + labels[rows], minlength=len(shares) * classes)
        names = tuple(names) if names is not None else tuple(str(client) for client in range(len(shares)))
        if len(names) != len(shares):
            raise ConfigError(f"Expected a name for each of {len(shares)} clients, got {len(names)}.")
        return cls(counts=counts.reshape(len(shares), classes), names=names)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many examples each client holds."""
        return np.asarray(self.counts.sum(axis=1), dtype=np.int64)


def summary(holdings: Holdings) -> dict[str, Any]:
    """Return the spread of the split in numbers: sizes, and how many classes a client sees.

    ``skew`` is the mean total variation distance between a client's classes and everybody's: 0 where all are
    alike.
    """
    sizes = holdings.sizes
    overall = holdings.counts.sum(axis=0) / holdings.counts.sum()
    own = holdings.counts / np.maximum(sizes, 1)[:, np.newaxis]
    return {
        "clients": len(sizes),
        "examples": int(sizes.sum()),
        "examples_per_client": _spread(sizes),
        "classes_per_client": _spread((holdings.counts > 0).sum(axis=1)),
        "skew": round(float(np.abs(own - overall).sum(axis=1).mean() / 2), 4),
    }


def summary_table(holdings: Holdings) -> Group:
    """Return :func:`summary`'s quantiles for people."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = summary(holdings)
    title = f"{facts['examples']:,} examples over {facts['clients']:,} clients; skew {facts['skew']:.2f}"
    quantiles = Table(box=None, padding=(0, 2, 0, 0))
    quantiles.add_column("per client")
    for name in facts["examples_per_client"]:
        quantiles.add_column(name, justify="right")
    for row, key in (("examples", "examples_per_client"), ("classes", "classes_per_client")):
        quantiles.add_row(row, *(f"{value:,g}" for value in facts[key].values()))
    return Group(Text(title), quantiles)


def table(holdings: Holdings, *, clients: int = 20, classes: int = 10) -> Group:
    """Return a row for each of the first ``clients``: its classes, or the commonest where there are many."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    total = len(holdings.names)
    shown = min(clients, total)
    title = f"The first {shown} of {total:,} clients, and how many of each class they hold"
    grid = Table(box=None, padding=(0, 1, 0, 0))
    grid.add_column("client", no_wrap=True)
    grid.add_column("examples", justify="right", no_wrap=True)
    wide = holdings.counts.shape[1] > classes
    every = [str(label) for label in range(holdings.counts.shape[1])]
    for column in ["classes", "commonest"] if wide else every:
        grid.add_column(column, justify="right", no_wrap=True)
    for name, counts in zip(holdings.names[:shown], holdings.counts[:shown], strict=True):
        if wide:
            top = int(counts.argmax())
            cells = [str(np.count_nonzero(counts)), f"{top} ({counts[top]} times)"]
        else:
            cells = [str(count) if count else "-" for count in counts.tolist()]
        grid.add_row(name, str(counts.sum()), *cells)
    # A table's own title would be wrapped to its width, which is small with few classes.
    return Group(Text(title), grid)


@dataclass(frozen=True, kw_only=True)
class Blocks:
    """A terminal plot: one line a client, one block a class, and a bar for the client's size.

    A block's shade is the class's share of the client's examples against an even share, 1 / classes: an even
    split is one grey all over, a skewed one has light and dark.
    """

    holdings: Holdings
    clients: int = 20
    bar: int = 20  # characters of the longest bar

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        levels, full = (_ASCII_LEVELS, "#") if options.ascii_only else (_LEVELS, "█")
        counts, sizes = self.holdings.counts[: self.clients], self.holdings.sizes[: self.clients]
        names = [name[:16] for name in self.holdings.names[: self.clients]]
        margin = max(len(name) for name in (*names, "client"))
        width = 2 if counts.shape[1] <= 20 else 1
        largest = max(1, int(sizes.max()))
        even = np.maximum(sizes, 1)[:, np.newaxis] / counts.shape[1]
        shades = np.where(counts > 0, 1 + np.digitize(counts / even, _STEPS), 0)
        heading = "".join(str(label % 10) * width for label in range(counts.shape[1]))
        number = max(len(f"{largest:,}"), len("size"))
        room = options.max_width - margin - number - len(heading) - 4
        longest = min(self.bar, room) if room >= 4 else 0
        yield Text(f"{'client':>{margin}} {'size':>{number}} |{heading}|", no_wrap=True, overflow="crop")
        for name, row, size in zip(names, shades.tolist(), sizes.tolist(), strict=True):
            cells = "".join(levels[shade] * width for shade in row)
            bar = full * max(1, round(size / largest * longest)) if size and longest else ""
            yield Text(f"{name:>{margin}} {size:>{number},} |{cells}| {bar}", no_wrap=True, overflow="crop")
        shares = [step / counts.shape[1] for step in _STEPS]
        bounds = [
            f"{levels[level] * width} from {share:.1%}" for level, share in enumerate(shares, start=2) if share <= 1
        ]
        yield Text(f"{'':>{margin}}  Shade: the class's share of the client's examples.")
        yield Text(f"{'':>{margin}}  {levels[1] * width} less  {'  '.join(bounds)}", no_wrap=True)
        if len(self.holdings.names) > self.clients:
            yield Text(f"{'':>{margin}}  These are the first {self.clients} of {len(self.holdings.names):,} clients.")


def check_figure(path: Path) -> None:
    """Raise ConfigError where :func:`figure` could not write ``path``, before any work is lost to it."""
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"Expected a figure named {', '.join('*' + suffix for suffix in _SUFFIXES)}, got {path}.")
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ConfigError("Figures need matplotlib, which is not installed. Run: pip install 'tacit[plot]'") from error


def figure(holdings: Holdings, path: Path, *, title: str) -> None:
    """Write a heat map of each client's classes beside its size, as PNG, SVG or PDF by the name's ending."""
    check_figure(path)
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    total, classes = holdings.counts.shape
    sizes = holdings.sizes
    drawing = Figure(figsize=(9, min(10.0, 2.5 + 0.22 * total)), layout="constrained")
    heat, bars = drawing.subplots(1, 2, sharey=True, width_ratios=(2.2, 1))
    shares = holdings.counts / np.maximum(sizes, 1)[:, np.newaxis]
    # A root scale keeps small shares visible beside a client that holds one class only.
    scale = PowerNorm(gamma=0.5, vmin=0, vmax=shares.max())
    picture = heat.imshow(shares, aspect="auto", interpolation="nearest", cmap="Blues", norm=scale)
    heat.set(xlabel="class", ylabel="client")
    heat.xaxis.set_major_locator(MaxNLocator(nbins=min(classes, 20), integer=True))
    if total <= 40:
        heat.set_yticks(range(total), [name[:20] for name in holdings.names])
    drawing.colorbar(picture, ax=heat, label="share of the client's examples", location="left", pad=0.02)
    bars.stairs(sizes, np.arange(total + 1) - 0.5, orientation="horizontal", fill=True, color="#08519c")
    bars.set(xlabel="examples")
    if sizes.max() > 100 * max(1, sizes.min()):
        bars.set_xscale("log")
    else:
        bars.xaxis.set_major_locator(MaxNLocator(nbins=4, integer=True))
    bars.tick_params(left=False, labelleft=False)
    for side in ("top", "right"):
        bars.spines[side].set_visible(False)
    drawing.suptitle(title)
    try:
        drawing.savefig(path, dpi=150)
    except OSError as error:
        raise StorageError(f"Can't write {path}: {error.strerror or error}. Name a folder you may write to.") from error


def _spread(values: NDArray[np.int64]) -> dict[str, float]:
    names = ("smallest", "quarter", "median", "three quarters", "largest")
    return dict(zip(names, np.percentile(values, _QUANTILES).tolist(), strict=True))
