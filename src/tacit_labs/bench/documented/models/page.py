"""The tables of models in the documentation and the README, from the results of both machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit_labs.bench.documented.common import between
from tacit_labs.bench.documented.models.few import OTHERS, SIZES
from tacit_labs.bench.documented.models.zoo import ZOO

MARKS = "<!-- models: python benchmarks/models.py --page-only -->", "<!-- end of models -->"
Results = Mapping[str, Any]


def table(cpu: Results, gpu: Results) -> str:
    """Return how many times a loop's speed rounds have, with real clients too, and what a step of DP-SGD costs."""
    steps = {
        entry.words: (
            *_steps(cpu, name, "ratio"),
            *_steps(gpu, name, "ratio"),
            *_steps(gpu, name, "memory"),
        )
        for name, entry in ZOO.items()
    }
    head = ("a DP-SGD step", "two cores", "Opacus's best", "H200", "Opacus's best", "memory there", "Opacus's least")
    parts = [short(cpu, gpu), _few(cpu), _real(cpu, gpu), _written(head, steps), _machines(cpu, gpu)]
    return "\n\n".join(filter(None, parts))


def _few(cpu: Results) -> str:
    """Return the rounds of few clients on the CPU, where there are any."""
    found = cpu.get("few", {})
    rows = {
        other.words: [_times(found.get(f"{name}, {size}", {}).get("faster")) for size in SIZES]
        for name, other in OTHERS.items()
    }
    head = (
        "a round of few clients",
        *(f"{size.clients} x {size.examples}, batch {size.batch}" for size in SIZES.values()),
    )
    return _written(head, rows) if found else ""


def _real(cpu: Results, gpu: Results) -> str:
    """Return the rounds of real clients, where both machines have them."""
    found = [results.get("real", {}) for results in (cpu, gpu)]
    rows = {
        ZOO[name].words: [f"{part[name]['size']}: {_times(part[name]['faster'])}" for part in found]
        for name in ZOO
        if all("faster" in part.get(name, {}) for part in found)
    }
    return _written(("real clients", "two cores", "H200"), rows) if rows else ""


def short(cpu: Results, gpu: Results) -> str:
    """Return the rounds alone."""
    head = ("a round", "many small clients", "few large", "H200, many small", "H200, few large")
    return _written(head, {entry.words: _rounds(cpu, gpu, name) for name, entry in ZOO.items()})


def _written(head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def filled(text: str, inside: str) -> str:
    """Return a page with a table between its marks."""
    return between(text, MARKS, inside)


def _rounds(cpu: Results, gpu: Results, name: str) -> list[str]:
    return [
        _times(results["rounds"].get(f"{name}, {size}", {}).get("faster"))
        for results in (cpu, gpu)
        for size in ("small", "large")
    ]


def _steps(results: Results, name: str, measure: str) -> list[str]:
    found = results["steps"].get(name, {}).get(measure, {})
    theirs = [value for peer, value in found.items() if peer.startswith("opacus")]
    return [_times(found.get("tacit")), _times(min(theirs, default=None))]


def _times(value: float | None) -> str:
    """Return a ratio as text.

    >>> _times(0.981), _times(11.4), _times(None)
    ('0.98x', '11x', '–')
    """
    if value is None:
        return "–"
    return f"{value:.0f}x" if value >= 10 else f"{value:.2f}x"


def _machines(cpu: Results, gpu: Results) -> str:
    def words(machine: Mapping[str, Any]) -> str:
        where = machine.get("gpu", f"{machine['processor']}, {machine['cores']} cores")
        return f"{where} (PyTorch {machine['packages']['torch']})"

    return f"{words(cpu['machine'])}; {words(gpu['machine'])}."
