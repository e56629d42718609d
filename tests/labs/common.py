"""A small experiment for tests of the frame, and what stands on a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from tacit.report.page import Chart, Fold, Part, Row, Section, Table
from tacit_labs.harness.experiment import Experiment, Finding, Progress, Reproduction, Settings, Sheet


def toy(name: str = "report-000", *, data: Any = None, error: Exception | None = None) -> Experiment:
    """Return an experiment that counts to two, or fails."""

    def run(settings: Settings, progress: Progress) -> Reproduction:
        settings.work(name).mkdir(parents=True)
        for done in (1, 2):
            progress("counting [a, b]", done=done, total=2)
        progress("resting")
        if error is not None:
            raise error
        checks = Table(
            columns=("operation", "result"),
            rows=(("add", "PASS"), ("[multiply]", "FAIL")),
            tones={(0, 1): "good", (1, 1): "bad"},
            caption="Checks",
        )
        rounded = Table(columns=("size", "seconds"), rows=((10, 1 / 3),))
        return Reproduction(
            settings="Two operations, `add` and **multiply**.",
            smaller="Two operations instead of ten." if settings.quick else "",
            findings=(
                Finding(what="speed", original="240 s", ours="3 s", why="the original used <one> core", headline=True),
            ),
            sections=(Section(title="Correctness", parts=(checks,)),),
            tables={"checks": checks, "times": rounded},
            sheets={"checks": Sheet(columns=("operation", "ok"), rows=(("add", True), ("multiply", False)))},
            data={"answer": 42} if data is None else data,
        )

    return Experiment(
        name=name,
        title="The counting lab",
        source="It counted to two.",
        document="009_toy.txt",
        parts=("counting", "resting"),
        quick="1 s",
        full="2 s",
        run=run,
    )


def charts(reproduction: Reproduction, title: str) -> list[Chart]:
    """Return the charts of a section."""
    return [part for part in _parts(reproduction, title) if isinstance(part, Chart)]


def tables(reproduction: Reproduction, title: str) -> list[Table]:
    """Return the tables of a section."""
    return [part for part in _parts(reproduction, title) if isinstance(part, Table)]


def _parts(reproduction: Reproduction, title: str) -> Iterator[Part]:
    (section,) = (one for one in reproduction.sections if one.title == title)
    yield from _flat(section.parts)


def _flat(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        if isinstance(part, Row | Fold):
            yield from _flat(part.parts)
        else:
            yield part
