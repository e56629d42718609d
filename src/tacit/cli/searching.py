"""The bar of a search for safe primes, which has no end that anybody could know beforehand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tacit.cli.output import console

Report = Callable[[int, float], None]


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Report]:
    """Give a function that moves a bar on stderr; nothing is shown before it is called, or without a terminal.

    Candidates pass or fail independently, so a search is never nearly done. The bar shows how likely it was to
    have ended by now, 1 - exp(-tested / mean), and beside it what is known: the count and the mean.
    """
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), TimeElapsedColumn())
    out = console(stderr=True)
    bar = Progress(*columns, console=out, disable=quiet or not out.is_terminal, transient=True)
    task = bar.add_task("", total=1.0, said="")
    primes, last = 1, 0

    def report(tested: int, mean: float) -> None:
        nonlocal primes, last
        bar.start()
        if tested < last:  # the next search
            primes += 1
        last = tested
        said = f"{tested:,} candidates tested, {mean:,.0f} in the mean"
        done = 1 - math.exp(-tested / mean)
        bar.update(task, completed=done, description=f"safe prime {primes}", said=said)

    try:
        yield report
    finally:
        if bar.live.is_started:
            bar.stop()
