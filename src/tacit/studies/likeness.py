"""What runs have in common, and where a comparison of them is not one of like with like."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.runs.result import Result
from tacit.runs.run import GIVEN
from tacit.studies.comparison import Entry

_UNSEEN = (
    "Some runs were trained on data that were given in memory: whether they are the same data can't be told from their "
    "folders."
)


def alike(entries: Sequence[Entry]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what all runs share, in words, and a warning for each thing they should share but do not."""
    shared: dict[str, str] = {}
    warnings: list[str] = []
    measured = [entry for entry in entries if entry.results]
    traits = {entry.name: _traits(entry) for entry in measured}
    for what in next(iter(traits.values()), {}):
        holders: dict[str, list[str]] = {}
        for name, own in traits.items():
            holders.setdefault(own[what], []).append(name)
        if len(holders) == 1:
            shared[what] = next(iter(holders))
        else:
            told = "; ".join(f"{value} in {', '.join(names)}" for value, names in holders.items())
            warnings.append(f"Not of like with like: {what} differ: {told}.")
    if any(result.dataset == GIVEN for entry in measured for result in entry.results):
        warnings.append(_UNSEEN)
    for entry in measured:
        seeds = [result.seed for result in entry.results if result.seed is not None]
        twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
        if twice:
            warnings.append(
                f"{entry.name} has the seed {twice[0]} more than once: runs that repeat each other make its spread too "
                "small."
            )
    return shared, tuple(warnings)


def _traits(entry: Entry) -> dict[str, str]:
    """Return what has to be the same, in words; runs of one entry that differ show all their values."""

    def every(values: Sequence[object]) -> str:
        return " and ".join(dict.fromkeys(str(value) for value in values))

    results: Sequence[Result] = entry.results
    return {
        "data": every([result.dataset for result in results]),
        "split": every([result.split for result in results]),
        "clients": every([result.clients for result in results]),
        "clients per round": every([result.per_round for result in results]),
        "model": every([f"{result.model} ({result.parameters:,} parameters)" for result in results]),
        "rounds": every([len(result.rounds) for result in results]),
        "seeds": ", ".join(
            map(str, sorted({"random" if result.seed is None else str(result.seed) for result in results}, key=_order))
        ),
    }


def _order(seed: str) -> tuple[int, str]:
    return len(seed), seed
