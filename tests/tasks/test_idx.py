from __future__ import annotations

import struct

import numpy as np
import pytest

from tacit.errors import DataError
from tacit.tasks.idx import parse_idx

IMAGES = struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 3) + bytes(range(12))


def test_bytes_and_big_endian_integers() -> None:
    assert parse_idx(IMAGES, file="x", dimensions=3).tolist() == np.arange(12).reshape(2, 2, 3).tolist()
    table = struct.pack(">4B2I4i", 0, 0, 0x0C, 2, 2, 2, 1, -2, 3, 70_000)
    assert parse_idx(table, file="x", dimensions=2).tolist() == [[1, -2], [3, 70_000]]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "nothing"),
        (IMAGES[:10], "magic"),
        (b"\x1f\x8b" + IMAGES[2:], "1f8b0803"),
        (b"\0\0\x0d" + IMAGES[3:], "0x0d"),
        (IMAGES[:3] + b"\2" + IMAGES[4:], "2 dimensions where 3"),
        (IMAGES[:-1], "27 bytes long"),
        (IMAGES + b"\0", "29 bytes long"),
    ],
)
def test_a_damaged_file_is_refused_by_name(content: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=reason) as caught:
        parse_idx(content, file="train-images", dimensions=3)
    assert str(caught.value).startswith("train-images")
    assert "tacit data get" in str(caught.value)
