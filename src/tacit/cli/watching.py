"""What a command shows while it works: one context manager for runs, studies, searches and all that takes a while."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.cli.output import console
from tacit.rounding import epsilon_text

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from tacit.report.live import TerminalObserver
    from tacit.studies.plan import Study
    from tacit.studies.pool import OnDone, OnRound
    from tacit.studies.results import Repeat

_NAMED = 3  # runs in flight that a bar names


@contextmanager
def watching(
    *, quiet: bool = False, as_json: bool = False, again: str | None = None, folder: Path | None = None
) -> Iterator[Watch]:
    """Show how far something is; nothing is shown before it is told of, or where nobody looks.

    >>> with watching(quiet=True) as watch:
    ...     watch.told("keys", done=1, total=3)

    Args:
        quiet: show nothing.
        as_json: the result is all that stdout gets.
        again: how to go on after Ctrl-C, which is then the end of the command and no error.
        folder: what is gone on with; where it is not there yet, nothing was done.
    """
    watch = Watch(quiet=quiet, as_json=as_json)
    try:
        yield watch
    except KeyboardInterrupt:
        if again is None:
            raise
        watch.stop()
        begun = folder is None or folder.exists()
        told = (
            f"Stopped. What is done is kept; {again}" if begun else "Stopped before the run began; nothing was written."
        )
        console(stderr=True).print(told, soft_wrap=True, markup=False, emoji=False)
        raise typer.Exit(130) from None
    finally:
        watch.stop()


class Watch:
    """Is told how far something is, and shows it: a run as a table of its rounds, all else as a bar on stderr."""

    def __init__(self, *, quiet: bool, as_json: bool) -> None:
        self._quiet = quiet
        self._as_json = as_json
        self._observer: TerminalObserver | None = None
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._primes, self._tested = 1, 0

    def run(self, *, units: str = "clients") -> TerminalObserver:
        """Return what shows the rounds of a run; ``units`` is what a round's bar counts."""
        if not self._as_json:
            self.told("getting ready")  # what follows loads more than a moment's worth of code
        from tacit.report.live import TerminalObserver

        self.stop()
        self._observer = TerminalObserver(
            console(stderr=self._as_json), quiet=self._quiet or self._as_json, units=units
        )
        return self._observer

    def study(self, study: Study) -> tuple[OnDone, OnRound]:
        """Return what shows the runs of a study: a line per run that has ended, and a bar that names those in flight.

        The bar counts the rounds of all runs. Without a terminal the lines are all there is.
        """
        rounds, ended_runs = [0] * len(study.runs), 0
        total = sum(run.rounds for run in study.runs)
        in_flight: dict[int, int] = {}  # places, and the round that each is at
        lines = None if self._quiet or self._as_json else console()

        def show() -> None:
            named = [
                f"{study.runs[place].name} {min(count + 1, study.runs[place].rounds)}/{study.runs[place].rounds}"
                for place, count in sorted(in_flight.items())
            ]
            said = ", ".join(named[:_NAMED]) + (f" and {len(named) - _NAMED} more" if len(named) > _NAMED else "")
            self.told("rounds", done=sum(rounds), total=total, said=f"{sum(rounds)}/{total}  {said}", ends=True)

        def moved(place: int, count: int) -> None:
            rounds[place] = in_flight[place] = count
            show()

        def ended(place: int, run: Repeat) -> None:
            nonlocal ended_runs
            ended_runs += 1
            in_flight.pop(place, None)
            rounds[place] = study.runs[place].rounds
            if lines is not None:
                told = f"run {ended_runs}/{len(study.runs)}  {run.name}  {_outcome(run)}"
                (self._bar.console if self._bar else lines).print(
                    told, markup=False, emoji=False, highlight=False, soft_wrap=True
                )
            show()

        self.told("rounds", done=0, total=total, said=f"0/{total}  getting ready", ends=True)
        return ended, moved

    def search(self, tested: int, mean: float) -> None:
        """Show a search for safe primes, which has no end that anybody could know beforehand.

        Candidates pass or fail independently, so a search is never nearly done. The bar shows how likely it was to
        have ended by now, 1 - exp(-tested / mean), and beside it what is known: the count and the mean.
        """
        if tested < self._tested:  # the next search
            self._primes += 1
        self._tested = tested
        said = f"{tested:,} candidates tested, {mean:,.0f} in the mean"
        self.told(f"safe prime {self._primes}", done=1 - math.exp(-tested / mean), total=1.0, said=said)

    def work(self, name: str) -> Callable[..., None]:
        """Return what shows a piece of work by its name: call it with what is being done, and how much of it."""

        def report(what: str, *, done: float | None = None, total: float | None = None) -> None:
            self.told(name, done=done, total=total, said=what if total is None else f"{what} {done or 0:g}/{total:g}")

        return report

    def told(
        self,
        name: str,
        *,
        done: float | None = None,
        total: float | None = None,
        said: str = "",
        ends: bool = False,
    ) -> None:
        """Move the bar to ``done`` of ``total``; where it ``ends`` foreseeably, it shows the time that is left."""
        if not self._shown():
            return
        bar = self._bar or self._begun(ends=ends)
        assert self._task is not None
        bar.update(self._task, description=_plain(name), completed=done, total=total, said=_plain(said))

    def stop(self) -> None:
        """Leave what is shown as it stands; also after an error or Ctrl-C."""
        if self._observer is not None:
            self._observer.stop()
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _shown(self) -> bool:
        return not self._quiet and console(stderr=True).is_terminal

    def _begun(self, *, ends: bool) -> Progress:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        clock = TimeRemainingColumn() if ends else TimeElapsedColumn()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}"), clock)
        self._bar = Progress(*columns, console=console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None, said="")
        self._bar.start()
        return self._bar


def _outcome(run: Repeat) -> str:
    from tacit.report.words import percent, seconds_text

    if run.result is None:
        return f"failed: {run.error}"
    privacy = run.result.privacy
    told = "" if privacy is None else f"  epsilon {epsilon_text(privacy.epsilon)}"
    return f"accuracy {percent(run.result.test_accuracy)}{told}  {seconds_text(run.result.seconds)}"


def _plain(text: str) -> str:
    """Return text whose brackets are not markup."""
    return text.replace("[", r"\[")
