"""What the measurements share: clocks, a process of its own, and where results are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import ConfigError
from tacit.storage import write_atomically


def wall(action: Callable[[], object]) -> float:
    """Return the seconds of an action by the clock."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def processor(action: Callable[[], object]) -> float:
    """Return the seconds of an action by this process's processor time."""
    start = time.process_time()
    action()
    return time.process_time() - start


def best(action: Callable[[], object], repeats: int) -> float:
    """Return the seconds of the fastest of several runs, by the clock."""
    return min(wall(action) for _ in range(repeats))


def in_a_child(module: str, *words: str, settings: Mapping[str, str]) -> Any:
    """Return what ``python -m module`` prints as JSON, from a process with these variables in its environment."""
    command = [sys.executable, "-P", "-m", module, *words]
    done = subprocess.run(command, env={**os.environ, **settings}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def keep(results: object, path: Path) -> None:
    """Write results as JSON; the folder is made where it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(results, indent=2) + "\n")


def between(text: str, marks: tuple[str, str], inside: str) -> str:
    """Return a documentation page with other text between two marks.

    >>> between("a <x> old <y> b", ("<x>", "<y>"), "new").split()
    ['a', '<x>', 'new', '<y>', 'b']
    """
    begin, end = marks
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ConfigError(f"Expected the page to have the lines {begin} and {end} once each.")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n\n{inside}\n\n{end}{rest.partition(end)[2]}"


def rewrite(page: Path, made: Callable[[str], str]) -> None:
    """Write a page anew, as a function of what it was."""
    write_atomically(page, made(page.read_text()).encode(), advice="Name a page that you may write to.")
