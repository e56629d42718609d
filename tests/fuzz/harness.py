"""A target has valid inputs, and a function that may do one of two things with any other: succeed, or raise an error of
Tacit's. Everything else is a finding: another exception, a wrong answer (an assertion), much time, much memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import resource
import signal
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import tacit
from tacit.errors import TacitError
from tests.fuzz.mutation import Form, Mutator

CORPUS = Path(__file__).parent / "corpus"

_SOURCE = str(Path(tacit.__file__).parent)
_MEMORY = 300 << 20  # bytes by which one input may raise the process's peak
_TRACED = 0.4  # the share of a long run that looks for inputs which reach new lines
_MOST_KEPT = 400


@dataclass(frozen=True, kw_only=True)
class Target:
    """One format.

    Attributes:
        name: also of its folder in the corpus.
        seeds: makes valid inputs; the same ones every time.
        check: reads an input, and looks at what came of it.
        mend: puts lengths and checksums right after a change, so that what lies behind them is reached.
        form: what else than bytes can be changed.
        inputs: how many are tried in the tests.
        seconds: of the processor that one input may take.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    check: Callable[[bytes], object]
    mend: Callable[[bytes], bytes] | None = None
    form: Form = "bytes"
    inputs: int = 2000
    seconds: float = 2.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An input that did what none may."""

    target: str
    data: bytes
    what: str

    def keep(self) -> Path:
        """Write the input where the tests find it from now on."""
        path = CORPUS / self.target / f"found-{hashlib.sha256(self.data).hexdigest()[:12]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.data)
        return path


def shrunk(target: Target, finding: Finding, *, tries: int = 300) -> Finding:
    """Return a shorter input that does the same, by leaving parts out."""
    size = len(finding.data) // 2
    while size and tries:
        for start in range(0, len(finding.data), size):
            shorter = finding.data[:start] + finding.data[start + size :]
            tries -= 1
            other = tried(target, shorter) if tries > 0 else None
            if other is not None and other.what[:20] == finding.what[:20]:
                finding = other
                break
        else:
            size //= 2
        tries = max(tries, 0)
    return finding


class Hang(BaseException):
    """An input took far too long."""


def tried(target: Target, data: bytes) -> Finding | None:
    """Try one input."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        with _impatient(10 * target.seconds), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="numpy")
            warnings.filterwarnings("ignore", message="Reading `.npy`")  # written by Python 2: NumPy's advice
            target.check(data)
    except TacitError as error:
        str(error).encode()  # it can be shown
    except Hang:
        return Finding(target=target.name, data=data, what=f"more than {10 * target.seconds:g} seconds")
    except Exception as error:
        return Finding(target=target.name, data=data, what=f"{type(error).__name__}: {error}"[:300])
    took = time.process_time() - start
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    if grown > _MEMORY:
        return Finding(target=target.name, data=data, what=f"{grown >> 20} MiB")
    if took > target.seconds:
        return Finding(target=target.name, data=data, what=f"{took:.1f} seconds")
    return None


@contextlib.contextmanager
def _impatient(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Hang

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def corpus(target: Target) -> list[bytes]:
    """Return the inputs that are kept for a target."""
    return [path.read_bytes() for path in sorted((CORPUS / target.name).glob("*"))]


def inputs(target: Target, seed: int, kept: list[bytes]) -> Iterator[bytes]:
    """Yield changed inputs without end; ``kept`` may grow meanwhile."""
    mutator = Mutator(f"{target.name} {seed}")
    while True:
        data = mutator.changed(mutator.random.choice(kept), kept, target.form)
        if target.mend is not None and mutator.random.random() < 0.7:
            with contextlib.suppress(
                ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError, struct.error
            ):
                data = target.mend(data)  # where there is enough left to mend
        yield data


@dataclass(kw_only=True)
class Coverage:
    """The lines of the package that inputs have reached."""

    seen: set[tuple[CodeType, int]] = field(default_factory=set)
    new: bool = False

    def __enter__(self) -> Coverage:
        self.new = False
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_SOURCE) else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        place = (frame.f_code, frame.f_lineno)
        if place not in self.seen:
            self.seen.add(place)
            self.new = True
        return self._line


@dataclass(kw_only=True)
class Campaign:
    """A long search in one target."""

    target: Target
    seed: int
    tried: int = 0
    lines: int = 0
    findings: dict[str, Finding] = field(default_factory=dict)

    def run(self, seconds: float, before: Callable[[bytes], None] = lambda data: None) -> None:
        """Search for so long; ``before`` is told each input, in case it ends the process."""
        kept = [*self.target.seeds(), *corpus(self.target)]
        coverage, start = Coverage(), time.monotonic()
        for data in kept:
            self._try(data, before, coverage)
        for data in inputs(self.target, self.seed, kept):
            gone = time.monotonic() - start
            if gone > seconds:
                break
            watched = gone < _TRACED * seconds
            fine = self._try(data, before, coverage if watched else None)
            if fine and watched and coverage.new and len(kept) < _MOST_KEPT:
                kept.append(data)
        self.lines = len(coverage.seen)
        slow = ("seconds", "MiB")
        for kind, finding in self.findings.items():
            if not finding.what.endswith(slow):
                self.findings[kind] = shrunk(self.target, finding)

    def _try(self, data: bytes, before: Callable[[bytes], None], coverage: Coverage | None) -> bool:
        before(data)
        self.tried += 1
        with coverage or contextlib.nullcontext():
            finding = tried(self.target, data)
        if finding is not None and coverage is not None and finding.what.endswith("seconds"):
            finding = tried(self.target, data)  # to be watched takes long
        if finding is not None:
            kind = finding.what[:60]
            if kind not in self.findings or len(data) < len(self.findings[kind].data):
                self.findings[kind] = finding
        return finding is None
