"""A disk that fails, or a machine that dies, at a chosen call below a folder."""

from __future__ import annotations

import builtins
import errno
import fcntl
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BY_PATH = ("open", "mkdir", "replace", "rename", "link", "unlink", "truncate", "rmdir", "chmod")
BY_DESCRIPTOR = ("write", "fsync", "fdatasync", "ftruncate", "fchmod")


class Disk:
    """Counts every call that may change something below ``root``, and does something at chosen ones.

    What is written there by other ways than these calls, as by ``open("w")``, is an error of the test: it would go
    uncounted.
    """

    def __init__(self, root: Path, at: Callable[[int, str], None] = lambda _number, _call: None) -> None:
        self._root = str(root)
        self._at = at
        self._open: set[int] = set()
        self.calls: list[str] = []

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        """Watch the calls of this process."""
        with pytest.MonkeyPatch.context() as patch:
            for name in BY_PATH:
                patch.setattr(os, name, self._by_path(name, getattr(os, name)))
            for name in BY_DESCRIPTOR:
                patch.setattr(os, name, self._by_descriptor(name, getattr(os, name)))
            patch.setattr(fcntl, "flock", self._by_descriptor("flock", fcntl.flock))
            patch.setattr(os, "close", self._closing(os.close))
            for module in (builtins, io):
                patch.setattr(module, "open", self._reading_only(builtins.open))
            yield self

    def _told(self, call: str) -> None:
        self.calls.append(call)
        self._at(len(self.calls), call)

    def _below(self, path: Any) -> bool:
        return not isinstance(path, int) and os.fsdecode(path).startswith(self._root)

    def _by_path(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, *arguments: Any, **named: Any) -> Any:
            if not self._below(path):
                return function(path, *arguments, **named)
            self._told(f"{name} {Path(os.fsdecode(path)).name}")
            answer = function(path, *arguments, **named)
            if name == "open":
                self._open.add(answer)
            return answer

        return watched

    def _by_descriptor(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(descriptor: int, *arguments: Any) -> Any:
            if descriptor in self._open:
                self._told(name)
            return function(descriptor, *arguments)

        return watched

    def _closing(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def watched(descriptor: int) -> None:
            self._open.discard(descriptor)
            function(descriptor)

        return watched

    def _reading_only(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
            assert not (self._below(path) and set(mode) & set("wax+")), f"{path} is not written by tacit.storage"
            return function(path, mode, *arguments, **named)

        return watched


def failing(number: int, code: int, *, ever_after: bool) -> Callable[[int, str], None]:
    """Return what fails the call of that number, and those after it if ``ever_after``."""

    def at(now: int, _call: str) -> None:
        if now == number or (ever_after and now > number):
            raise OSError(code, os.strerror(code))

    return at


def dying(number: int) -> Callable[[int, str], None]:
    """Return what ends the process at that call, as kill -9 does: nothing of ours runs after it."""

    def at(now: int, _call: str) -> None:
        if now == number:
            os._exit(DEAD)

    return at


DEAD = 9
FAULTS = [(errno.EIO, False), (errno.EIO, True), (errno.ENOSPC, False), (errno.ENOSPC, True)]
