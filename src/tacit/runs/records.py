"""The records of a journal: which fields each kind has, and of which form.

What is there is checked; older journals say less, and kinds and fields of a later version are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

Natural = Annotated[int, Field(ge=0, lt=1 << 63)]
Clients = list[Natural]


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")


class _Split(_Record):
    sizes: Clients
    counts: list[Annotated[list[Natural], Field(min_length=1)]] = []


class _Start(_Record):
    key: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    simulation: bool
    dataset: str
    examples: Natural
    time: str = ""
    title: str = ""
    model: str = ""
    parameters: Natural = 0
    device: str = ""
    form: str = ""
    split: _Split = _Split(sizes=[])
    environment: dict[str, Any] = {}


class _Group(_Record):
    clients: Clients
    event: dict[str, Any]


class _Attempt(_Record):
    round: Natural
    attempt: Natural
    clients: Natural | None = None
    charge: dict[str, Any] | None
    asked: Literal["all"] | Clients | None = None
    example_charges: list[_Group] | None = None


class _Round(_Record):
    round: Natural
    dropped: Clients | None = None


class _Failed(_Record):
    round: Natural
    attempt: Natural
    reason: str


class _Note(_Record):
    round: Natural
    text: str


class _Resume(_Record):
    time: str = ""
    environment: dict[str, Any] = {}


class _Stopped(_Record):
    reason: str


_KINDS: dict[str, type[_Record]] = {
    "start": _Start,
    "attempt": _Attempt,
    "round": _Round,
    "failed": _Failed,
    "note": _Note,
    "resume": _Resume,
    "stopped": _Stopped,
}


def wrong_with(record: Any) -> str | None:
    """Return what is wrong with a record, or None.

    >>> wrong_with({"type": "stopped", "reason": "It was interrupted."})
    >>> wrong_with({"type": "stopped", "reason": 3})
    "reason of a 'stopped' record: input should be a valid string"
    """
    if not isinstance(record, Mapping) or not isinstance(record.get("type"), str):
        return f"expected a record with a type, got {record!r:.60}"
    kind = record["type"]
    if kind not in _KINDS:
        return None
    try:
        _KINDS[kind].model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        return f"{where} of a {kind!r} record: {first['msg'][0].lower()}{first['msg'][1:]}"
    return None
