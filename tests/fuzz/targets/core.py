"""The C core's own functions: any buffers and sizes are refused, or the answer is what Python's integers give."""

from __future__ import annotations

import struct
from typing import Any

from tacit.crypto import native
from tacit.crypto.native import LANES, NativeRing, _aligned
from tacit.crypto.ring import from_integers
from tacit.errors import WireError
from tests.fuzz.harness import Target

_PLAN = struct.Struct(">BBhhhhhh")  # function, flags, sizes that are added to those that fit
_MODULUS = (1 << 127) - 1  # a prime: what has an inverse is known
_FUNCTIONS = ("power", "build_table", "table_powers", "product", "fold", "unfold", "affine", "quotient", "limbs")


def _seeds() -> list[bytes]:
    body = bytes(range(1, 200))
    return [_PLAN.pack(place, 0, 0, 0, 0, 0, 0, 0) + body for place in range(len(_FUNCTIONS))]


def _room(size: int) -> bytearray:
    return bytearray(min(max(size, 0), 1 << 16))


def _call(data: bytes) -> None:
    if len(data) < _PLAN.size or native.why_not() is not None:
        raise WireError("too short, or nothing to call")
    function, flags, *more = _PLAN.unpack_from(data)
    body, name = data[_PLAN.size :], _FUNCTIONS[function % len(_FUNCTIONS)]
    modulus = _MODULUS**2 if flags & 1 else _MODULUS
    ring = NativeRing(modulus)
    constants, pair, width = ring.fast if flags & 1 else ring.plain
    known = bytes(constants.tobytes() if not flags & 2 else body[: len(constants.tobytes()) + more[0]])
    head = (known, pair if not flags & 4 else more[1], width + more[2])
    try:
        answer = _COMMANDS[name](head, body, more, ring)
    except (ValueError, MemoryError, OverflowError) as error:
        if isinstance(error, MemoryError):
            raise
        raise WireError(str(error)) from error
    assert answer is None or isinstance(answer, int)


def _rows(body: bytes, ring: NativeRing, count: int) -> bytes:
    whole = (body * (1 + count * ring.width // max(len(body), 1)))[: count * ring.width] if body else bytes(ring.width)
    return bytes(whole)


def _power(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    bases, exponent = _rows(body, ring, 1 + len(body) % 9), body[:6]
    out = _room(len(bases) + more[3])
    places = 4 * len(exponent) * 2 // 4 + more[4]
    outside = native._native.power(*head, bases, exponent, places, 4 + more[5] % 2, len(body) % 2, out)
    constants, *others = ring.fast if len(head[0]) == 6 * 16 else ring.plain
    if not outside and not any(more) and head == (constants.tobytes(), *others):
        power = int.from_bytes(exponent, "big")
        for start in range(0, len(bases), ring.width):
            base = int.from_bytes(bases[start : start + ring.width], "big")
            assert int.from_bytes(out[start : start + ring.width], "big") == pow(base, power, ring.modulus)
    return int(outside)


def _build_table(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    table = _aligned(max(2 * ring.size * 7 * 256 + more[3], 0))
    return int(native._native.build_table(*head, _rows(body, ring, 1), table[more[4] % 64 :] if more[4] else table))


def _table_powers(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    table = _aligned(max(2 * ring.size * 7 * 256 + more[3], 0))
    native._native.build_table(
        *(ring.fast if ring.fast[1] else ring.plain), from_integers([3], ring.width), _whole(table, ring)
    )
    return int(native._native.table_powers(*head, table, body[:16], 2 + more[4], _room(8 * ring.width + more[5])))


def _whole(table: Any, ring: NativeRing) -> Any:
    return _aligned(2 * ring.size * 7 * 256) if len(table) % (ring.size * 7 * 256) or not len(table) else table


def _product(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    vectors = tuple(_rows(body, ring, 2) for _ in range(1 + more[3] % 5)) if more[3] != 1 else ()
    return int(native._native.product(*head, vectors, _rows(body, ring, 1), _room(2 * ring.width + more[4])))


def _fold(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    rows = _rows(body, ring, 9)
    kept = _aligned(max(2 * ring.limbs * 64 + more[3], 0)) if more[4] >= 0 else _aligned(0)
    return int(native._native.fold(*head, rows, kept, _room(LANES * ring.width + more[5])))


def _unfold(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    rows, kept = _rows(body, ring, 9), _aligned(max(2 * ring.limbs * 64 + more[3], 0))
    kept[:] = 0
    return int(native._native.unfold(*head, rows, kept, _rows(body, ring, LANES), _room(len(rows) + more[4])))


def _affine(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    terms = (_rows(body, ring, 3), bytes(body[: 3 * (1 + more[3] % 40)]))
    factors = _rows(body, ring, max(3 + more[4] % 9, 0))
    times = b"" if more[5] else _rows(body, ring, 3)
    return int(native._native.affine(*head, terms, factors, times, _room(3 * ring.width)))


def _quotient(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    del head, ring
    wide, out = 16 + more[0], 16 + more[1]
    rows, inverse = bytes(body[: 3 * 16 + more[2]]), body[: max(26 + more[3], 0)]
    return int(native._native.quotient(rows, wide, inverse, _room(3 * 16 + more[4]), out))


def _limbs(head: tuple[Any, ...], body: bytes, more: list[int], ring: NativeRing) -> int:
    del head, ring
    return int(native._native.limbs(int.from_bytes(body[:9], "big") * (1 if more[0] >= 0 else -1)))


_COMMANDS = {
    "power": _power,
    "build_table": _build_table,
    "table_powers": _table_powers,
    "product": _product,
    "fold": _fold,
    "unfold": _unfold,
    "affine": _affine,
    "quotient": _quotient,
    "limbs": _limbs,
}

TARGETS = (Target(name="core", seeds=_seeds, check=_call, inputs=4000),)
