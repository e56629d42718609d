"""Docstrings as the site shows them: examples that begin with ``>>>`` are code, wherever they stand."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

# A run of lines from the first prompt to the next empty line, indented as the docstring is.
EXAMPLE = re.compile(r"(?m)(^[ ]*>>> .*(?:\n(?![ ]*$).*)*(?:\n[ ]*\n[ ]*>>> .*(?:\n(?![ ]*$).*)*)*)")


class Examples(Extension):
    """Puts doctests between fences."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Return a docstring with its examples between fences."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[1]}\n```", text)
