"""Text to HTML: everything is escaped, and two marks are understood."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping
from typing import Any


def escaped(text: str) -> str:
    """Return text for HTML, also between quotation marks.

    >>> escaped('<a href="x">')
    '&lt;a href=&quot;x&quot;&gt;'
    """
    return html.escape(text)


def marked(text: str) -> str:
    """Return text for HTML in which `` `code` `` and ``**bold**`` are set as such.

    >>> marked("**Two** of `a<b`")
    '<strong>Two</strong> of <code>a&lt;b</code>'
    """
    pieces = re.split(r"(`[^`]+`)", text)
    return "".join(
        f"<code>{escaped(piece[1:-1])}</code>"
        if len(piece) > 2 and piece[0] == piece[-1] == "`"
        else re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", escaped(piece))
        for piece in pieces
    )


def plain(text: str) -> str:
    """Return text for a chart's label; plotly would read some tags as markup otherwise.

    >>> plain("a<b>c")
    'a&lt;b&gt;c'
    """
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def cell(value: object) -> str:
    """Return a table's cell as text, numbers rounded for people.

    >>> cell(12345), cell(0.123456), cell(None), cell("dp"), cell(True)
    ('12,345', '0.1235', '–', 'dp', 'yes')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "–" if math.isnan(value) else "infinite" if value > 0 else "minus infinite"
        return f"{value:.4g}" if abs(value) < 9_999.5 else f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.3g}"
    return str(value)


def json_block(value: object) -> str:
    r"""Return JSON that can stand inside a ``<script>`` element: no text in it can end the element.

    >>> json_block({"a": "</script>"})
    '{"a":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(_data(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _data(value: Any) -> Any:
    """Return plain data: arrays as lists, and numbers that JSON has no word for as null."""
    if isinstance(value, Mapping):
        return {str(key): _data(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_data(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy's arrays and numbers
        return _data(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
