"""The plain run beside a protected one: what the same training reaches without protection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import RunError, TacitError
from tacit.modes.catalogue import mode_of
from tacit.report.page import Series
from tacit.runs.folder import RESULT, config_of
from tacit.runs.history import History
from tacit.runs.progress import complete
from tacit.runs.result import Result
from tacit.storage import is_there

_MOST = 200  # folders that are looked into


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a run without protection reached on the same data, split, model and number of clients."""

    name: str
    result: Result

    @property
    def accuracy(self) -> float | None:
        """Its test accuracy at the end."""
        return self.result.test_accuracy

    def curve(self, *, style: int) -> Series:
        """Return its test accuracy by round."""
        rounds = self.result.rounds
        accuracy = [record.test_accuracy for record in rounds]
        return Series(
            name=f"without protection ({self.name})", x=[record.round for record in rounds], y=accuracy, style=style
        )


def beside(folder: Path, history: History) -> Baseline | None:
    """Return the plain run that stands beside a run, in the same folder of runs, if there is one that is like it."""
    if not _protected(history) or history.alone:
        return None
    wanted = _likeness(history)
    found: list[tuple[bool, float, Baseline]] = []
    for other in _neighbours(folder):
        try:
            result = Result.read(other / RESULT)
            like = (result.dataset, result.split, result.model, result.clients) == wanted
            if like and not _protects(result.mode, other):
                same = result.seed == history.config.seed
                when = (other / RESULT).stat().st_mtime
                found.append((same, when, Baseline(name=other.name, result=result)))
        except (TacitError, OSError):
            continue  # another's folder, or a damaged one
    return max(found, key=lambda each: each[:2])[2] if found else None


def named(folder: Path) -> Baseline:
    """Return the run in ``folder``, which must be finished, to stand beside another."""
    result = complete(folder) if is_there(folder / RESULT) else None
    if result is None:
        raise RunError(f"{folder} is not the folder of a finished run. Name one that is, or leave out --baseline.")
    return Baseline(name=folder.resolve().name, result=result)


def _neighbours(folder: Path) -> Sequence[Path]:
    own = folder.resolve()
    try:
        others = [path for path in sorted(own.parent.iterdir())[:_MOST] if path != own and is_there(path / RESULT)]
    except OSError:
        return ()
    return others


def _likeness(history: History) -> tuple[str, str, str, int]:
    result, start, config = history.result, history.start, history.config
    if result is not None:
        return result.dataset, result.split, result.model, result.clients
    return start.dataset, config.data.split, start.model or config.model.name, history.clients


def _protected(history: History) -> bool:
    return history.plan.private or bool(mode_of(history.config.mode).hidden)


def _protects(name: str, folder: Path) -> bool:
    """Return whether a run hid anything, by noise, encryption or masks."""
    mode = mode_of(name)
    return bool(mode.hidden) or mode.examples == "always" or mode.noisy(config_of(folder))
