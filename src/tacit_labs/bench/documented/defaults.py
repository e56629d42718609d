"""The default run on MNIST, seed by seed, and what server rates other than the default give on three splits."""

from __future__ import annotations

from typing import Any

import tacit


def accuracy(seed: int, **settings: Any) -> dict[str, Any]:
    """Run once and return the accuracy of each round and the seconds."""
    result = tacit.run(tacit.RunConfig(seed=seed, **settings))
    return {
        "seed": seed,
        "settings": settings,
        "accuracy": [record.test_accuracy for record in result.rounds],
        "seconds": result.seconds,
        "setup_seconds": result.setup_seconds,
    }


def show(title: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Print the final accuracies of some runs."""
    final = [row["accuracy"][-1] for row in rows]
    seconds = min(row["seconds"] for row in rows)
    each = ", ".join(f"{100 * value:.2f}" for value in final)
    mean = 100 * sum(final) / len(final)
    print(f"{title:28} mean {mean:.2f}%  least {100 * min(final):.2f}%  ({each})  {seconds:.1f} s")
    return rows


def measure(*, seeds: int, splits: bool) -> dict[str, list[dict[str, Any]]]:
    """Return the default run with ``seeds`` seeds; with ``splits`` two server rates on three splits as well."""
    each = range(1, seeds + 1)
    tables = {"default, 6 rounds": show("default, 6 rounds", [accuracy(seed) for seed in each])}
    for split in ("iid", "dirichlet:0.3", "shards:2") if splits else ():
        for rate in (1.0, 1.5):
            title = f"{split}, server.lr={rate}"
            runs = [accuracy(seed, data={"split": split}, server={"lr": rate}) for seed in each]
            tables[title] = show(title, runs)
    return tables
