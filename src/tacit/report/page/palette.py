"""How series are told apart: by colour, and by dash, symbol and hatching where there is no colour.

The colours of the two themes are in ``style.css`` as ``--series-1`` to ``--series-8``; their lightness differs by at
least six steps of CIE L*, so that they stay apart in grey.
"""

from __future__ import annotations

COUNT = 8
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px", "2px,6px")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross")
PATTERNS = ("", "/", ".", "\\", "x", "-", "|", "+")


def colour(style: int) -> str:
    """Return the name of a style's colour in the theme; styles are counted from 0.

    >>> colour(0), colour(8)
    ('series-1', 'series-1')
    """
    return f"series-{style % COUNT + 1}"


def dash(style: int) -> str:
    """Return how a line of a style is broken."""
    return DASHES[style % COUNT]


def symbol(style: int) -> str:
    """Return the marker of a style."""
    return SYMBOLS[style % COUNT]


def pattern(style: int) -> str:
    """Return the hatching of a style's bars."""
    return PATTERNS[style % COUNT]
