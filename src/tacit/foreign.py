r"""Files, JSON and YAML that somebody else wrote, or damaged: bounded before they are read, and refused with one error.

Python's own parsers raise RecursionError on deep nesting, give ``inf`` for ``1e999`` and NaN for ``NaN``, keep the last
of two values of one name, and pass half a surrogate pair on to whoever writes the text next. None of that is in what
Tacit writes, so none of it is read.
"""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tacit.errors import WireError

if TYPE_CHECKING:
    from gzip import GzipFile

LARGEST = 1 << 20  # bytes of a document, unless its reader says otherwise
DEEPEST = 32  # lists and mappings inside each other

_PART = 1 << 20  # bytes read at a time
_MOST_DIGITS = 40  # of a whole number: 128 bits; longer ones travel in hexadecimal
_MOST_NODES = 100_000  # of a YAML document whose aliases are written out
_TWICE = "a name is given twice"
_TOO_DEEP = f"it is nested deeper than {DEEPEST} levels"
_TOO_LARGE = f"it has more than {_MOST_NODES} values"
# A string, also one that never ends, is one match: so the scan takes time in proportion to the text.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def json_value(data: bytes | memoryview | str, *, largest: int = LARGEST, finite: bool = True) -> Any:
    """Return what JSON says, or raise WireError.

    Args:
        data: the text, UTF-8 where it is bytes.
        largest: how many bytes it may have.
        finite: whether NaN and infinite numbers are refused.

    >>> json_value(b'{"round": 3}')
    {'round': 3}
    >>> json_value(b'{"clip": 1e999}')
    Traceback (most recent call last):
    ...
    tacit.errors.WireError: Expected JSON, got b'{"clip": 1e999}': 1e999 is no finite number.
    """
    text = _text(data, largest)
    try:
        _check_depth(text)
        value = json.loads(
            text,
            parse_int=_whole,
            parse_float=_finite if finite else None,
            parse_constant=_finite if finite else None,
            object_pairs_hook=_named,
        )
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()  # refuses half a surrogate pair
    except ValueError as error:
        raise WireError(f"Expected JSON, got {_start(data)!r}: {error}.") from None
    return value


def json_object(data: bytes | memoryview | str, *, largest: int = LARGEST) -> dict[str, Any]:
    """Return the named values of a JSON object, or raise WireError."""
    value = json_value(data, largest=largest)
    if not isinstance(value, dict):
        raise WireError(f"Expected a JSON object, got {_start(data)!r}.")
    return value


def yaml_value(text: bytes | str, *, largest: int = LARGEST // 8) -> Any:
    """Return what YAML says, or raise WireError; an alias counts as often as it is used."""
    import yaml

    text = _text(text, largest)
    try:
        value = yaml.load(text, _bounded_loader())
        _check_values(value)
    except RecursionError:
        raise WireError(f"Expected YAML, got {_start(text)!r}: it refers to itself.") from None
    except (yaml.YAMLError, ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        # its constructors of dates and numbers let Python's errors through
        raise WireError(f"Expected YAML, got {_start(text)!r}: {error}.") from error
    return value


@functools.cache
def _bounded_loader() -> type[Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Stops at a depth, and before `<<` makes a mapping too large: each level of merges may multiply it."""

        depth = 0

        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            self.depth += 1
            if self.depth > DEEPEST:
                raise ValueError(_TOO_DEEP)
            node = super().compose_node(parent, index)
            self.depth -= 1
            if isinstance(node, yaml.MappingNode):
                names = [(key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                if len(names) > len(set(names)):
                    raise ValueError(_TWICE)
            return node

        def flatten_mapping(self, node: yaml.MappingNode) -> None:
            size = 0
            for key, value in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    for part in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                        if isinstance(part, yaml.MappingNode):
                            self.flatten_mapping(part)
                            size += len(part.value)
            if size > _MOST_NODES:
                raise ValueError(_TOO_LARGE)
            super().flatten_mapping(node)

    return Loader


def open_plain(path: Path) -> BinaryIO:
    """Open a plain file to read it; a pipe or a device, which could wait or give bytes for ever, raises OSError."""
    flags = ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")  # the first: to open a pipe waits for its writer
    descriptor = os.open(path, os.O_RDONLY | sum(getattr(os, flag, 0) for flag in flags))
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    raise OSError(errno.EINVAL, "it is a pipe or a device, expected a plain file", str(path))


def read_plain(path: Path, *, largest: int) -> bytes:
    """Return the bytes of a plain file of at most ``largest``; any other raises OSError."""
    with open_plain(path) as stream:
        return read_all(stream, largest=largest)


def read_all(stream: BinaryIO | GzipFile, *, largest: int) -> bytes:
    """Return what is left of a stream; more than ``largest`` bytes raise OSError, and take no memory."""
    parts: list[bytes] = []
    left = largest
    while part := stream.read(_PART):  # to ask for all that is allowed would claim the memory for it
        left -= len(part)
        if left < 0:
            raise OSError(errno.EFBIG, f"it is longer than {largest} bytes")
        parts.append(part)
    return b"".join(parts)


def _text(data: bytes | memoryview | str, largest: int) -> str:
    if len(data) > largest:
        raise WireError(f"Expected a document of at most {largest} bytes, got {len(data)}.")
    if isinstance(data, str):
        return data
    try:
        return bytes(data).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"Expected text in UTF-8, got {_start(data)!r}: {error}.") from None


def _start(data: bytes | memoryview | str) -> bytes | str:
    start = data[:40]
    return bytes(start) if isinstance(start, memoryview) else start


def _check_depth(text: str) -> None:
    depth = 0
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "[{":
            depth += 1
            if depth > DEEPEST:
                raise ValueError(_TOO_DEEP)
        elif first in "]}":
            depth -= 1


def _check_values(value: Any) -> None:
    """Refuse what could not be written again: too much of it, numbers too long to print, half a surrogate pair."""
    waiting, nodes = [(value, 0)], 0
    while waiting:
        inner, depth = waiting.pop()
        nodes += 1
        if nodes > _MOST_NODES:
            raise ValueError(_TOO_LARGE)
        if depth > DEEPEST:  # by aliases
            raise ValueError(_TOO_DEEP)
        if isinstance(inner, int) and abs(inner) >= 10**_MOST_DIGITS:
            raise ValueError(f"a whole number has more than {_MOST_DIGITS} digits")
        if isinstance(inner, str):
            inner.encode()
        elif isinstance(inner, dict):
            waiting += [(part, depth + 1) for pair in inner.items() for part in pair]
        elif isinstance(inner, list | tuple | set):
            waiting += [(part, depth + 1) for part in inner]


def _whole(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise ValueError(f"a whole number has {len(digits)} digits, expected at most {_MOST_DIGITS}")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is no finite number")
    return number


def _named(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise ValueError(_TWICE)
    return named
