"""What an experiment is, what it is asked and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tacit.report.page import Cell, Section, Table


class Progress(Protocol):
    """Is told what is being done, and how much of it is done where that is known."""

    def __call__(self, what: str, *, done: float | None = None, total: float | None = None) -> None:
        """Say that ``what`` is being done, and that ``done`` of ``total`` steps of it are."""


def silent(what: str, *, done: float | None = None, total: float | None = None) -> None:
    """Say nothing: the progress of a caller who does not watch."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How an experiment is to be run."""

    quick: bool = False  # within a minute on two cores, with smaller settings that the page names
    out: Path = Path("reproductions")
    seed: int = 1
    gpu: int = -1  # -1 is the CPU
    data_dir: Path | None = None  # where to look first for data sets

    def work(self, name: str) -> Path:
        """Return a folder for what an experiment keeps between runs, so that one that was stopped can go on.

        It depends on all that changes the results. Nothing in it is needed once the page is there.

        >>> Settings(quick=True, seed=3).work("report-000").as_posix()
        'reproductions/unfinished/report-000-quick-seed-3-cpu'
        """
        device = "cpu" if self.gpu < 0 else f"gpu-{self.gpu}"
        return self.out / "unfinished" / f"{name}-{'quick' if self.quick else 'full'}-seed-{self.seed}-{device}"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One comparison: what the original had, what we got, and why they differ (or that they do not)."""

    what: str  # the thing that is compared, a few words
    original: str  # a quotation stands in quotation marks
    ours: str
    why: str
    headline: bool = False  # whether it stands in the overview of all sources

    def __post_init__(self) -> None:
        empty = [name for name, text in vars(self).items() if isinstance(text, str) and not text.strip()]
        if empty:
            raise ValueError(f"A finding says all of what, original, ours and why; {', '.join(empty)} is empty.")


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """Numbers in full precision for a CSV file, where a table for people has words or too few of them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def csv(self) -> str:
        """Return the sheet as CSV."""
        return Table(columns=self.columns, rows=self.rows).csv()


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What an experiment gave."""

    settings: str  # what was run, in words: data, model, rounds, seeds, key sizes
    smaller: str = ""  # of a quick run: which settings are smaller than the full run's, and than what
    findings: Sequence[Finding]
    sections: Sequence[Section]  # the figures and tables, made with the page kit
    tables: Mapping[str, Table] = field(default_factory=dict)  # for the terminal; the page shows what is in sections
    sheets: Mapping[str, Sheet] = field(
        default_factory=dict
    )  # name -> CSV; a table without a sheet is written as it is
    data: Mapping[str, Any] = field(default_factory=dict)  # plain containers of finite numbers, for JSON

    def __post_init__(self) -> None:
        if not self.findings:
            raise ValueError("A reproduction has at least one finding: ours beside the original.")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What one source document has, and how it is run again.

    Attributes:
        name: on the command line, and of its files.
        title: of its page.
        source: what the original was and what it showed, a sentence or two.
        document: the file name of the source document, from which everything in quotation marks is.
        parts: its experiments, a few words each.
        quick: how much processor time ``--quick`` takes, as it was measured last.
        full: the same of all of it, and on what.
        run: does it.
    """

    name: str
    title: str
    source: str
    document: str = ""
    parts: Sequence[str] = ()
    quick: str = "about a minute"
    full: str = "not measured"
    run: Callable[[Settings, Progress], Reproduction]
