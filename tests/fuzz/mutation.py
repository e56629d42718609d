"""Changes to valid inputs: bytes, lengths, the values in JSON and YAML. The same seed gives the same changes."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Literal

Form = Literal["bytes", "json", "lines", "yaml", "words"]

_LONGEST = 1 << 16
_NUMBERS: tuple[int, ...] = (
    *(0, 1, 2, -1, 7, 127, 128, 255, 256, 1 << 15, (1 << 16) - 1, 1 << 31, (1 << 32) - 1, 1 << 36, 1 << 40),
    *((1 << 63) - 1, 1 << 63, (1 << 64) - 1),
)
_RAW = "raw:"  # what json.dumps would not write, put in afterwards
_VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        "0",
        "x",
        "a" * 300,
        "é\U0001f600",
        "-1",
        "1e999",
        "nan",
        "infinity",
        "/",
        "\n",
        "0x1",
        "00",
    ),
    *(0, 1, -1, 2, 3, 0.5, -0.5, 1e-300, 1e300, 5e-324, 1 << 31, 1 << 53, 1 << 63, 1 << 64, -(1 << 70), 10**30, 10**38),
    *([], {}, [[]], [{}], {"": None}, [1, 2, 3], [None], {"kind": "x"}, ["a", 1, None]),
    *(
        f"{_RAW}{text}"
        for text in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999", "9" * 5000, '"\\ud800"', "[" * 5000)
    ),
    *(
        f"{_RAW}{text}"
        for text in ("[" * 40 + "]" * 40, '{"a":' * 40 + "1" + "}" * 40, '{"a":1,"a":2}', "tru", "1.", "-0")
    ),
)
_TOKENS: tuple[str, ...] = (
    *("\n", ": ", "- ", "[", "]", "{", "}", "&a ", "*a", "<<: *a", "!!int ", "!!float ", "!!binary ", "!!set ", "? "),
    *(
        "2021-99-99",
        "0x_",
        "1:30",
        ".inf",
        ".nan",
        "~",
        '"',
        "'",
        "|\n",
        "%YAML 9.9\n",
        "---\n",
        "\t",
        "#",
        "=",
        ".",
        ",",
    ),
)


class Mutator:
    """Draws changes from a generator of its own."""

    def __init__(self, seed: int | str) -> None:
        self.random = random.Random(seed)

    def changed(self, data: bytes, others: Sequence[bytes], form: Form) -> bytes:
        """Return ``data`` with one to four changes; ``others`` are valid inputs of the same kind to take parts from."""
        for _ in range(self.random.choice((1, 1, 2, 4))):
            change = self._bytes
            if form == "json" and self.random.random() < 0.75:
                change = self._json
            elif form == "lines" and self.random.random() < 0.75:
                change = self._lines
            elif form in ("yaml", "words") and self.random.random() < 0.75:
                change = self._text
            data = change(data, others)[:_LONGEST]
        return data

    def _bytes(self, data: bytes, others: Sequence[bytes]) -> bytes:
        changes: tuple[Callable[[bytearray], bytes | bytearray], ...] = (
            self._flipped,
            self._set,
            self._number,
            self._number,
            self._cut,
            self._removed,
            self._repeated,
            self._inserted,
            lambda raw: self._spliced(raw, others),
        )
        return bytes(self.random.choice(changes)(bytearray(data)))

    def _place(self, raw: bytearray) -> int:
        """Return a place, mostly near the front, where headers are."""
        near = self.random.random() < 0.5
        return self.random.randrange(min(len(raw), 64) if near else len(raw)) if raw else 0

    def _flipped(self, raw: bytearray) -> bytearray:
        if raw:
            raw[self._place(raw)] ^= 1 << self.random.randrange(8)
        return raw

    def _set(self, raw: bytearray) -> bytearray:
        if raw:
            raw[self._place(raw)] = self.random.choice((0, 1, 0x7F, 0x80, 0xFF, self.random.randrange(256)))
        return raw

    def _number(self, raw: bytearray) -> bytearray:
        """Overwrite a field of one to eight bytes with a number that is telling for lengths."""
        size = self.random.choice((1, 2, 4, 8))
        number = self.random.choice((*_NUMBERS, len(raw), len(raw) - 1, len(raw) + 1)) % (1 << (8 * size))
        place = self._place(raw)
        raw[place : place + size] = number.to_bytes(size, self.random.choice(("big", "little")))
        return raw

    def _cut(self, raw: bytearray) -> bytearray:
        return raw[: self._place(raw)]

    def _part(self, raw: bytearray) -> slice:
        start = self._place(raw)
        return slice(start, start + self.random.choice((1, 2, 4, 8, 16, 32, 64, len(raw))))

    def _removed(self, raw: bytearray) -> bytearray:
        del raw[self._part(raw)]
        return raw

    def _repeated(self, raw: bytearray) -> bytearray:
        part = self._part(raw)
        raw[part.stop : part.stop] = raw[part] * self.random.choice((1, 2, 3, 50))
        return raw

    def _inserted(self, raw: bytearray) -> bytearray:
        place = self._place(raw)
        raw[place:place] = self.random.randbytes(self.random.choice((1, 2, 4, 8, 33)))
        return raw

    def _spliced(self, raw: bytearray, others: Sequence[bytes]) -> bytearray:
        other = bytearray(self.random.choice(others))
        place = self._place(raw)
        if self.random.random() < 0.5:
            return raw[:place] + other[place:]  # the same field of another input
        return raw[:place] + other[self._part(other)] + raw[place:]

    def _json(self, data: bytes, others: Sequence[bytes]) -> bytes:
        try:
            value = json.loads(data)
            json.dumps(value)  # that its numbers can be written, too
        except (ValueError, RecursionError):
            return self._bytes(data, others)
        try:
            other = json.loads(self.random.choice(others))
        except (ValueError, RecursionError):
            other = None
        for _ in range(self.random.choice((1, 1, 2))):
            value = self._value(value, other)
        return _dumped(value)

    def _lines(self, data: bytes, others: Sequence[bytes]) -> bytes:
        lines = data.splitlines() or [b""]
        place = self.random.randrange(len(lines))
        match self.random.randrange(8):
            case 0:
                del lines[place]
            case 1:
                lines.insert(self.random.randrange(len(lines)), lines[place])
            case 2:
                other = self.random.randrange(len(lines))
                lines[place], lines[other] = lines[other], lines[place]
            case _:
                lines[place] = self._json(
                    lines[place], [line for other in others for line in other.splitlines()] or [b""]
                )
        return b"\n".join(lines) + b"\n"

    def _text(self, data: bytes, others: Sequence[bytes]) -> bytes:
        """Change the words of a text: put in tokens of YAML, or exchange what stands after a colon or equals sign."""
        text = data.decode(errors="replace")
        lines = text.split("\n")
        place = self.random.randrange(len(lines))
        value = _dumped(self.random.choice(_VALUES)).decode()
        match self.random.randrange(6):
            case 0:
                at = self.random.randrange(len(text) + 1)
                return (text[:at] + self.random.choice(_TOKENS) + text[at:]).encode(errors="replace")
            case 1:
                del lines[place]
            case 2:
                other = self.random.choice(others).decode(errors="replace").split("\n")
                lines.insert(place, self.random.choice(other))
            case 3:
                lines[place] = " " * self.random.randrange(6) + lines[place].lstrip()
            case _:
                for mark in self.random.sample((": ", "="), 2):
                    if mark in lines[place]:
                        lines[place] = lines[place].rpartition(mark)[0] + mark + value
                        break
        return "\n".join(lines).encode(errors="replace")

    def _value(self, value: Any, other: Any) -> Any:
        """Return a value with one part of it, or all, exchanged."""
        if isinstance(value, dict) and value and self.random.random() < 0.9:
            name = self.random.choice(sorted(value))
            match self.random.randrange(8):
                case 0:
                    return {key: inner for key, inner in value.items() if key != name}
                case 1:
                    return value | {self.random.choice((name + "x", "", "type", "kind")): value[name]}
                case 2:
                    return value | {name: value[self.random.choice(sorted(value))]}
                case _:
                    inner = other.get(name) if isinstance(other, dict) else None
                    return value | {name: self._value(value[name], inner)}
        if isinstance(value, list) and value and self.random.random() < 0.8:
            place = self.random.randrange(len(value))
            match self.random.randrange(6):
                case 0:
                    return value[:place] + value[place + 1 :]
                case 1:
                    return value + value[place:] * self.random.choice((1, 2, 20))
                case _:
                    return [*value[:place], self._value(value[place], None), *value[place + 1 :]]
        if isinstance(value, str) and value and self.random.random() < 0.5:
            raw = value.encode(errors="replace")
            return self._bytes(raw, [raw]).decode(errors="replace")
        if isinstance(value, int | float) and self.random.random() < 0.4:
            return value + self.random.choice((-1, 1, 2, 0.5)) if abs(value) < 1e15 else -value
        return other if other is not None and self.random.random() < 0.3 else self.random.choice(_VALUES)


def _dumped(value: Any) -> bytes:
    text = json.dumps(value)
    for raw in (raw for raw in _VALUES if isinstance(raw, str) and raw.startswith(_RAW)):
        text = text.replace(json.dumps(raw), raw.removeprefix(_RAW))
    return text.encode()
