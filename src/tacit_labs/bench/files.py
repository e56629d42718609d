"""Where a benchmark is kept: its numbers as JSON, a figure, and a page."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.storage import write_atomically

if TYPE_CHECKING:
    from tacit.report.page import Page, Section

Results = dict[str, Any]

TITLES = {"crypto": "Encryption beside other libraries", "simulation": "Simulation beside other libraries"}
ALL = "bench"
_ADVICE = "Free some space, or choose another folder with --out."


def write(measured: Mapping[str, Results], folder: Path, *, page: bool = True) -> list[Path]:
    """Write NAME.json and, where matplotlib is installed, NAME.png for each benchmark, and one page for all.

    Args:
        measured: results by the benchmark's name, ``crypto`` or ``simulation``.
        folder: where to; it is made where it is missing.
        page: whether to write the page; it carries its charting library and has two megabytes.
    """
    whole = _page(measured).html() if page else None  # first, so that what can't be shown leaves no half of the files
    paths = []
    for benchmark, results in measured.items():
        paths.append(folder / f"{benchmark}.json")
        write_atomically(paths[-1], (json.dumps(results, indent=2, allow_nan=False) + "\n").encode(), advice=_ADVICE)
        figure = folder / f"{benchmark}.png"
        try:
            write_atomically(figure, _figure(benchmark, results), advice=_ADVICE)
            paths.append(figure)
        except ImportError:
            figure.unlink(missing_ok=True)  # an older figure would not be of these results
    if whole is not None:
        paths.append(folder / f"{next(iter(measured)) if len(measured) == 1 else ALL}.html")
        write_atomically(paths[-1], whole.encode(), advice=_ADVICE)
    return paths


def _page(measured: Mapping[str, Results]) -> Page:
    from tacit.report.page import Page

    alone = next(iter(measured)) if len(measured) == 1 else None
    return Page(
        title=TITLES[alone] if alone else "Tacit beside other libraries",
        subtitle=f"tacit bench {alone or 'all'}",
        sections=tuple(section for name, results in measured.items() for section in _sections(name, results)),
        foot="Made by `tacit bench`; the numbers are in the JSON files beside this page.",
    )


def _sections(benchmark: str, results: Results) -> tuple[Section, ...]:
    from tacit_labs.bench import crypto_page, simulation_page

    return {"crypto": crypto_page.sections, "simulation": simulation_page.sections}[benchmark](results)


def _figure(benchmark: str, results: Results) -> bytes:
    from tacit_labs.bench import crypto_figure, simulation_figure

    data = io.BytesIO()
    {"crypto": crypto_figure.draw, "simulation": simulation_figure.draw}[benchmark](results, data)
    return data.getvalue()
