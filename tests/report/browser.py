"""A headless browser for the tests that look at a page as people do."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--enable-logging=stderr",
    "--dump-dom",
)

BROWSER = next((found for name in _NAMES if (found := shutil.which(name))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"no browser is installed (looked for {', '.join(_NAMES)})")


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a browser made of a page."""

    dom: str
    console: tuple[str, ...]

    @property
    def root(self) -> str:
        """The opening tag of the page, where its script leaves word."""
        found = re.search(r"<html[^>]*>", self.dom)
        assert found is not None
        return found.group()

    @property
    def trouble(self) -> str:
        """What the page says went wrong, or nothing."""
        found = re.search(r'<p id="trouble"([^>]*)>([^<]*)</p>', self.dom)
        assert found is not None
        return "" if "hidden" in found.group(1) else found.group(2)


def look(page: Path | str, *flags: str, budgets: Sequence[int] = (10_000, 60_000)) -> Seen:
    """Open a page, a file or an address, and return it after its charts were drawn, or as far as it got."""
    assert BROWSER is not None
    address = page if isinstance(page, str) else page.resolve().as_uri()
    seen = None
    for budget in budgets:  # virtual milliseconds: a busy machine may need the second try
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
            command = [BROWSER, *_FLAGS, *flags, f"--user-data-dir={profile}", f"--virtual-time-budget={budget}"]
            done = subprocess.run([*command, address], capture_output=True, text=True, timeout=120, check=True)
        seen = Seen(dom=done.stdout, console=tuple(re.findall(r"CONSOLE:\d+\] (.*)", done.stderr)))
        if "data-charts" in seen.root or "data-errors" in seen.root:
            break
    assert seen is not None
    return seen


def drawn(seen: Seen) -> int:
    """Return how many charts have lines, bars or cells in them."""
    charts = re.split(r'<div class="chart js-plotly-plot"', seen.dom)[1:]
    return sum(1 for chart in charts if re.search(r'class="(trace|point|hm|barlayer|contour)', chart))


def sheets(page: Path) -> int:
    """Return how many sheets of paper a page takes."""
    assert BROWSER is not None
    printed = page.with_suffix(".pdf")
    flags = [flag for flag in _FLAGS if flag != "--dump-dom"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [BROWSER, *flags, f"--user-data-dir={profile}", f"--print-to-pdf={printed}", page.resolve().as_uri()]
        subprocess.run(command, capture_output=True, timeout=120, check=True)
    return len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
