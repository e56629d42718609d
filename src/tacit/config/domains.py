"""Domains of settings, as annotations that check and say what is allowed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from tacit import limits


class Domain(ABC):
    """An annotation whose :meth:`check` looks at a value of the right type."""

    @abstractmethod
    def check(self, value: Any) -> Any:
        """Return the value, or raise ValueError with what was expected."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))


@dataclass(frozen=True)
class Between(Domain):
    """A number between two others; NaN is between no numbers."""

    low: float
    high: float
    without_low: bool = False
    without_high: bool = False

    def check(self, value: float) -> float:
        """Refuse what is outside; the error names the whole domain."""
        above = self.low < value if self.without_low else self.low <= value
        below = value < self.high if self.without_high else value <= self.high
        if not (above and below):
            raise ValueError(f"expected a {'whole ' if isinstance(value, int) else ''}number {self}")
        return value

    def __str__(self) -> str:
        if isinstance(self.low, int) and isinstance(self.high, int) and not (self.without_low or self.without_high):
            return f"from {self.low:,} to {self.high:,}"
        ends = "(" if self.without_low else "[", ")" if self.without_high else "]"
        return f"in {ends[0]}{self.low:g}, {self.high:g}{ends[1]}"


@dataclass(frozen=True)
class Name(Domain):
    """A text of some length at the most, without characters that no terminal or file can show."""

    longest: int

    def check(self, value: str) -> str:
        """Refuse what is too long, and control characters."""
        if len(value) > self.longest or not value.isprintable():
            raise ValueError(f"expected at most {self.longest} characters that can be printed")
        return value


@dataclass(frozen=True)
class Place(Domain):
    """A path that the system can have."""

    def check(self, value: Path) -> Path:
        """Refuse what no file system takes: too long as a whole or in a part, with a zero byte, or not encodable."""
        try:
            parts = [os.fsencode(part) for part in value.parts]
        except UnicodeEncodeError as error:
            raise ValueError("expected a path that this system can write down") from error
        if b"\0" in b"".join(parts):
            raise ValueError("expected a path without zero bytes")
        if max(map(len, parts), default=0) > limits.FILE_NAME or len(os.fsencode(value)) > limits.PATH:
            raise ValueError(
                f"expected a path of at most {limits.PATH:,} bytes, each name in it of at most {limits.FILE_NAME}"
            )
        try:
            str(value).encode()
        except UnicodeEncodeError as error:  # it is kept in config.yaml, and shown
            raise ValueError("expected a path whose bytes are text in UTF-8") from error
        return value
