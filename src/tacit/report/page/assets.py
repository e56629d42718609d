"""What every page carries: its style, its script and plotly.js."""

from __future__ import annotations

import base64
import gzip
from functools import cache
from importlib.resources import files


def style() -> str:
    """Return the style sheet."""
    return _read("style.css")


def script() -> str:
    """Return the script that draws the charts."""
    return _read("script.js")


@cache
def library() -> str:
    """Return plotly.js, compressed, as base64: 2 MB instead of 5. The same bytes every time."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), compresslevel=9, mtime=0)).decode()


@cache
def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
