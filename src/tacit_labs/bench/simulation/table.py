"""The comparison of simulations as text."""

from __future__ import annotations

from tacit_labs.bench.simulation.measured import Results
from tacit_labs.bench.simulation.peers.jobs import JOBS

EXAMPLES = 60_000  # MNIST's training set


def table(results: Results) -> str:
    """Return everything that was measured, for people."""
    parts = [heading(results)]
    parts += [_job(results, name) for name in results.rounds]
    parts += [f"left out: {name} ({why})" for name, why in results.absent.items()]
    return "\n\n".join(parts)


def heading(results: Results) -> str:
    """Return on what and how it was measured."""
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.packages.items())
    several = f"best of {results.repeats} processes per side, in turn"
    times = several if results.repeats > 1 else "one process per side"
    return (
        f"the 21,840-parameter CNN on MNIST; {times}, the first round of each left out\n"
        f"{machine.processor}, {machine.cores} cores, Python {machine.python}; {versions}\n"
        f"two independent processes get {results.two_processes_against_one:.2f}x done of what one does, just now"
    )


def _job(results: Results, name: str) -> str:
    job = JOBS[name]
    columns = f"{'s/round':>11}{'rounds/s':>10}{'clients/s':>11}{'Tacit is':>16}"
    lines = [f"{job.title}: {job.words(EXAMPLES)}", f"{'':32}{columns}"]
    for row in results.ordered(name):
        numbers = f"{row.seconds:>11.3f}{row.rounds_per_second:>10.3g}{row.clients_per_second:>11.3g}"
        faster = "" if row.is_ours else f"{row.faster_by:.1f}x as fast"
        around = "" if row.around_training is None else f"  {100 * row.around_training:.1f}% around training"
        lines.append(f"{row.title + ' ' + row.version:32}{numbers}{faster:>16}{around}".rstrip())
    return "\n".join(lines)
