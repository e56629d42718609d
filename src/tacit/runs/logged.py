"""A run that is also written to logs: an observer between the run and whoever watches it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tacit
from tacit.config.overrides import flat
from tacit.config.run_config import RunConfig
from tacit.federated.plan import NO_CLAIM, Privacy
from tacit.logs import choice
from tacit.logs.background import PATIENCE, Background
from tacit.logs.log import About, Ending, Status, Step
from tacit.runs.observer import Observer
from tacit.runs.result import Result, RoundRecord

_LEFT_OUT = (
    *("out", "data.folder", "paillier.key", "log"),  # places of this machine
    "nbafl.smallest",  # counted from the clients' data
)
_SHORT = 2.0  # seconds that a run which broke off waits for its logs


def check(config: RunConfig) -> None:
    """Refuse logs that can't be written, before the run begins."""
    choice.check(config.log, folder=config.out)


@contextmanager
def logged(config: RunConfig, observer: Observer) -> Iterator[Observer]:
    """Yield an observer that also writes the logs that ``config`` asks for, and close them however the run ends."""
    if not config.log:
        yield observer
        return
    watching = Logged(config, observer, choice.opened(config.log, folder=config.out))
    try:
        yield watching
    except KeyboardInterrupt:
        watching.broke_off("stopped")
        raise
    except BaseException:
        watching.broke_off("failed")
        raise


class Logged:
    """Passes everything on, and writes rounds and the end to logs."""

    def __init__(self, config: RunConfig, observer: Observer, logs: Sequence[Background]) -> None:
        self._config = config
        self._observer = observer
        self._logs = logs
        self._last: Mapping[str, float] = {}
        self._began = time.time()
        self._ended = False

    def note(self, text: str) -> None:
        """Pass it on."""
        self._observer.note(text)

    def doing(self, what: str, share: float | None = None) -> None:
        """Pass it on."""
        self._observer.doing(what, share)

    def started(self, *, title: str, rounds: int, done: tuple[RoundRecord, ...]) -> None:
        """Open the logs; rounds of an earlier session are placed in time as if it had just ended."""
        self._observer.started(title=title, rounds=rounds, done=done)
        now = time.time()
        at = now - sum(map(_apart, done))
        steps = []
        for record in done:
            at += _apart(record)
            steps.append(Step(number=record.round, at=at, values=values_of(record)))
        self._began = now - (done[-1].round if done else 0)
        self._last = steps[-1].values if steps else {}
        about = about_of(self._config, title)
        for log in self._logs:
            log.begin(about, steps)

    def progress(self, *, replied: int, asked: int) -> None:
        """Pass it on."""
        self._observer.progress(replied=replied, asked=asked)

    def round_done(self, record: RoundRecord) -> None:
        """Pass it on, then write it."""
        self._observer.round_done(record)
        self._last = values_of(record)
        for log in self._logs:
            log.step(Step(number=record.round, at=self._when(record), values=self._last))
        self._tell()

    def finished(self, result: Result) -> None:
        """Write the end, then pass it on: what went wrong with a log is said before the summary."""
        last = result.rounds[-1]
        late = {name: value for name, value in values_of(last).items() if name not in self._last}
        if late:  # a run that its budget stopped is tested after its last round
            for log in self._logs:
                log.step(Step(number=last.round, at=self._when(last), values=late))
        self._end(ending_of(result), patience=PATIENCE)
        self._observer.finished(result)

    def broke_off(self, status: Status) -> None:
        """Close the logs of a run that did not come to its end."""
        if not self._ended:
            self._end(Ending(status=status, values={}, texts={}), patience=_SHORT)

    def _end(self, ending: Ending, *, patience: float) -> None:
        self._ended = True
        for log in self._logs:
            log.end(ending, patience=patience)
        self._tell()

    def _when(self, record: RoundRecord) -> float:
        """Return when a round ended; where its seconds are not told, rounds stand a second apart."""
        return time.time() if record.wall_seconds is not None else self._began + record.round

    def _tell(self) -> None:
        for log in self._logs:
            failure = log.failure()
            if failure is not None:
                self._observer.note(failure)


def _apart(record: RoundRecord) -> float:
    return 1.0 if record.wall_seconds is None else record.wall_seconds


def values_of(record: RoundRecord) -> dict[str, float]:
    """Return a round's numbers; what was not measured is left out."""
    values: dict[str, Any] = {
        "loss/train": record.train_loss,
        "loss/test": record.test_loss,
        "loss/train_data": record.train_data_loss,
        "accuracy/train": record.train_accuracy,
        "accuracy/test": record.test_accuracy,
        "privacy/epsilon": record.epsilon,
        "privacy/example_epsilon": record.example_epsilon,
        "bytes/up": record.bytes_up,
        "bytes/down": record.bytes_down,
        "bytes/key_holders": record.bytes_holders,
        "clients/expected": record.clients_expected,
        "clients/asked": record.clients_asked,
        "clients/replied": record.clients_replied,
        "seconds/round": record.wall_seconds,
    }
    values |= {f"seconds/{stage}": seconds for stage, seconds in record.seconds.items()}
    return {name: float(value) for name, value in values.items() if value is not None and math.isfinite(value)}


def about_of(config: RunConfig, title: str) -> About:
    """Return what a log is told first; what is of this machine or of the clients' data is left out."""
    plain = config.model_dump(mode="json")
    settings = {key: str(value) for key, value in flat(plain) if key not in _LEFT_OUT}
    return About(
        name=config.mode if config.out is None else config.out.name,
        title=title,
        settings=settings,
        config="\n".join(f"{key}: {value}" for key, value in settings.items()),
        tags={
            "mode": config.mode,
            "engine": config.engine,
            "version": tacit.__version__,
            "simulation": "yes" if config.seed is not None else "no",
        },
        folder=config.out,
    )


def ending_of(result: Result) -> Ending:
    """Return what a log is told last."""
    claims = [claim for claim in (result.privacy, result.example_privacy) if claim is not None]
    values = {
        "final/test_accuracy": result.test_accuracy,
        "final/train_accuracy": result.train_accuracy,
        "final/test_loss": result.test_loss,
        "final/seconds": result.seconds,
    }
    texts = {
        "privacy": "\n\n".join(map(_stated, claims)) or NO_CLAIM,
        "who sees what": "\n\n".join(f"{who}: {what}" for who, what in result.sees.items()),
    }
    if result.notes:
        texts["notes"] = "\n\n".join(result.notes)
    return Ending(
        status="finished",
        values={name: float(value) for name, value in values.items() if value is not None},
        texts=texts,
        result=result.to_json(),
    )


def _stated(privacy: Privacy) -> str:
    notes = " ".join(privacy.notes)
    return (
        f"epsilon {_epsilon(privacy.epsilon)} at delta {privacy.delta:g} ({privacy.accountant}), unit: {privacy.unit}, "
        f"neighbours: {privacy.neighbours}, against {privacy.against}. {notes}"
    )


def _epsilon(value: float) -> str:
    return "infinite" if value == math.inf else f"{value:.6g}"
