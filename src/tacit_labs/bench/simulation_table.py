"""The comparison of simulations as text."""

from __future__ import annotations

from typing import Any

from tacit_labs.bench.peers.jobs import JOBS

EXAMPLES = 60_000  # MNIST's training set


def table(results: dict[str, Any]) -> str:
    """Return everything that was measured, for people."""
    parts = [heading(results)]
    parts += [_job(results, name) for name in results["rounds"]]
    parts += [f"left out: {name} ({why})" for name, why in results["absent"].items()]
    return "\n\n".join(parts)


def heading(results: dict[str, Any]) -> str:
    """Return on what and how it was measured."""
    machine = results["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    times = (
        f"best of {results['repeats']} processes a side, in turn" if results["repeats"] > 1 else "one process a side"
    )
    return (
        f"the 21,840-parameter CNN on MNIST; {times}, the first round of each left out\n"
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}; {versions}\n"
        f"two independent processes get {machine['two_processes_against_one']:.2f}x done of what one does, just now"
    )


def _job(results: dict[str, Any], name: str) -> str:
    job = JOBS[name]
    columns = f"{'s a round':>11}{'rounds/s':>10}{'clients/s':>11}{'Tacit is':>16}"
    lines = [f"{job.title}: {job.words(EXAMPLES)}", f"{'':32}{columns}"]
    for row in ordered(results, name):
        numbers = f"{row['seconds']:>11.3f}{row['rounds_a_second']:>10.3g}{row['clients_a_second']:>11.3g}"
        faster = "" if row["peer"] == "tacit" else f"{row['tacit_is_faster_by']:.1f}x as fast"
        around = f"  {100 * row['around_training']:.1f}% around training" if "around_training" in row else ""
        lines.append(f"{row['title'] + ' ' + row['version']:32}{numbers}{faster:>16}{around}".rstrip())
    return "\n".join(lines)


def ordered(results: dict[str, Any], job: str) -> list[dict[str, Any]]:
    """Return the rows of a job, the fastest first."""
    return sorted((row for row in results["rows"] if row["job"] == job), key=lambda row: float(row["seconds"]))
