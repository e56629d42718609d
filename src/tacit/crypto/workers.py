"""Helper processes for the one job that threads can't share under gmpy2: many powers of one base.

A helper is this Python running this module. It is told a modulus and a base once, builds the same table, and then
answers exponents with powers over its standard streams. It is started with no inherited state but its arguments
(nothing is forked, so no secret and no random state is shared), and ends when its input is closed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import struct
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import IO

import numpy as np

from tacit.crypto.ring import Rows

_SHAPE = struct.Struct(">QQ")


class TableWorkers:
    """Helpers that hold the table of one base."""

    def __init__(self, modulus: int, base: int, bits: int, count: int) -> None:
        setting = f"{modulus:x} {base:x} {bits}\n".encode()
        self._lock = threading.Lock()
        self._helpers = [_start(setting) for _ in range(count)]
        self._end = weakref.finalize(self, _end, self._helpers)  # when it is forgotten, or at exit

    def share(self, exponents: Rows, own: Callable[[Rows], Rows], *, here: bool = True) -> Rows:
        """Return the powers of all ``exponents``: an equal part from every helper, and one part computed here.

        The part of a helper that was lost is computed here as well.

        Args:
            exponents: what to raise the base to.
            own: computes here.
            here: whether a part is computed here at all; without it this thread only waits.
        """
        with self._lock:
            parts = np.array_split(exponents, len(self._helpers) + here)
            mine, theirs = (parts[0], parts[1:]) if here else (exponents[:0], parts)
            sent = [_send(helper.stdin, part) for helper, part in zip(self._helpers, theirs, strict=True)]
            done = [own(mine)]
            for helper, part, is_sent in zip(self._helpers, theirs, sent, strict=True):
                answer = _receive(helper.stdout) if is_sent else None
                done.append(own(part) if answer is None else answer)
            return np.concatenate(done)

    def close(self) -> None:
        """End the helpers."""
        self._end()


def table_workers(modulus: int, base: int, bits: int, count: int) -> TableWorkers:
    """Return the helpers of a base; those of the last two bases stay, and no forked process shares its parent's."""
    return _kept(os.getpid(), modulus, base, bits, count)


@functools.lru_cache(maxsize=2)
def _kept(process: int, modulus: int, base: int, bits: int, count: int) -> TableWorkers:
    del process
    return TableWorkers(modulus, base, bits, count)


def _start(setting: bytes) -> subprocess.Popen[bytes]:
    helper = subprocess.Popen(
        [sys.executable, "-P", "-m", "tacit.crypto.workers"],  # -P: nothing is imported from the current folder
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert helper.stdin is not None
    helper.stdin.write(setting)
    helper.stdin.flush()
    return helper


def _end(helpers: list[subprocess.Popen[bytes]]) -> None:
    for helper in helpers:
        for stream in (helper.stdin, helper.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        helper.wait()


def _send(stream: IO[bytes] | None, rows: Rows) -> bool:
    """Write rows, and say whether the reader was still there."""
    assert stream is not None
    try:
        stream.write(_SHAPE.pack(*rows.shape) + rows.tobytes())
        stream.flush()
    except BrokenPipeError:
        return False
    return True


def _receive(stream: IO[bytes] | None) -> Rows | None:
    """Read rows, or None where the writer is gone."""
    assert stream is not None
    shape = stream.read(_SHAPE.size)
    if len(shape) < _SHAPE.size:
        return None
    count, width = _SHAPE.unpack(shape)
    body = stream.read(count * width)
    return np.frombuffer(body, np.uint8).reshape(count, width) if len(body) == count * width else None


def _serve(source: IO[bytes], sink: IO[bytes]) -> None:
    from tacit.crypto.gmp import GmpRing

    modulus, base, bits = source.readline().split()
    table = GmpRing(int(modulus, 16)).table(int(base, 16), bits=int(bits))
    while (exponents := _receive(source)) is not None:
        _send(sink, table.powers(exponents, workers=1))


if __name__ == "__main__":
    _serve(sys.stdin.buffer, sys.stdout.buffer)
