"""How far a long computation is, for whoever watches, without a word of it in anybody's arguments.

Whoever watches says so around a piece of work, and is told from any thread that works for it::

    with telling(lambda what, share: print(f"{what} {share:.0%}")):
        key.encrypt(vector)                                     # encrypting 25%, encrypting 50%, ...

Who computes calls :func:`told` as it goes; where nobody watches that costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[str, float], None]  # what is computed, and how much of it is done, up to 1

_WATCHING: ContextVar[Tell | None] = ContextVar("tacit_watching", default=None)


@contextmanager
def telling(tell: Tell) -> Iterator[None]:
    """Have ``tell`` called, from any thread, with what is computed in the block and how much of it is done.

    >>> with telling(print):
    ...     told("adding", 0.5)
    adding 0.5
    >>> told("adding", 1.0)
    """
    before = _WATCHING.set(tell)
    try:
        yield
    finally:
        _WATCHING.reset(before)


def told(what: str, share: float) -> None:
    """Tell whoever watches how much is done."""
    tell = _WATCHING.get()
    if tell is not None:
        tell(what, share)
