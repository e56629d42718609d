"""Where a benchmark is kept: its numbers as JSON, a figure, and a page."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tacit.storage import write_atomically
from tacit_labs.bench.crypto.measured import Results as CryptoResults
from tacit_labs.bench.simulation.measured import Results as SimulationResults

if TYPE_CHECKING:
    from tacit.report.page import Page, Section

Results = CryptoResults | SimulationResults

TITLES = {"crypto": "Encryption beside other libraries", "simulation": "Simulation beside other libraries"}
ALL = "bench"
_ADVICE = "Free some space, or choose another folder with --out."


def write(measured: Sequence[Results], folder: Path, *, page: bool = True) -> list[Path]:
    """Write NAME.json and, where matplotlib is installed, NAME.png for each benchmark, and one page for all.

    Args:
        measured: the results of each benchmark.
        folder: where to; it is made where it is missing.
        page: whether to write the page; it carries its charting library and has two megabytes.
    """
    whole = _page(measured).html() if page else None  # first, so that what can't be shown leaves no half of the files
    paths = []
    for results in measured:
        paths.append(folder / f"{results.name}.json")
        numbers = json.dumps(results.to_dict(), indent=2, allow_nan=False) + "\n"
        write_atomically(paths[-1], numbers.encode(), advice=_ADVICE)
        figure = folder / f"{results.name}.png"
        try:
            write_atomically(figure, _figure(results), advice=_ADVICE)
            paths.append(figure)
        except ImportError:
            figure.unlink(missing_ok=True)  # an older figure would not be of these results
    if whole is not None:
        paths.append(folder / f"{measured[0].name if len(measured) == 1 else ALL}.html")
        write_atomically(paths[-1], whole.encode(), advice=_ADVICE)
    return paths


def text(results: Results) -> str:
    """Return a benchmark for the terminal."""
    from tacit_labs.bench.crypto import table as crypto
    from tacit_labs.bench.simulation import table as simulation

    return crypto.table(results) if isinstance(results, CryptoResults) else simulation.table(results)


def _page(measured: Sequence[Results]) -> Page:
    from tacit.report.page import Page

    alone = measured[0].name if len(measured) == 1 else None
    return Page(
        title=TITLES[alone] if alone else "Tacit beside other libraries",
        subtitle=f"tacit bench {alone or 'all'}",
        sections=tuple(section for results in measured for section in _sections(results)),
        foot="Made by `tacit bench`; the numbers are in the JSON files beside this page.",
    )


def _sections(results: Results) -> tuple[Section, ...]:
    from tacit_labs.bench.crypto import page as crypto
    from tacit_labs.bench.simulation import page as simulation

    return crypto.sections(results) if isinstance(results, CryptoResults) else simulation.sections(results)


def _figure(results: Results) -> bytes:
    from tacit_labs.bench.crypto import figure as crypto
    from tacit_labs.bench.simulation import figure as simulation

    data = io.BytesIO()
    if isinstance(results, CryptoResults):
        crypto.draw(results, data)
    else:
        simulation.draw(results, data)
    return data.getvalue()
