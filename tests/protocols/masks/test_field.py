"""The field: exact at the ends of its range, for every width that travels."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import ConfigError, WireError
from tacit.protocols.masks import field as fields
from tacit.protocols.masks.field import Field, add_masks


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 2**40), st.integers(1, 2**20), st.integers(0, 2**32))
def test_sums_at_the_ends_of_the_range_are_exact(bound: int, summands: int, seed: int) -> None:
    field = Field(bound=bound, summands=summands)
    assert 2 ** (field.bits - 1) <= 2 * bound * summands < 2**field.bits  # the least modulus that holds the sum
    few = min(summands, 3)
    drawn = np.random.default_rng(seed).integers(-bound, bound + 1, (few, 4))
    drawn[:, 0], drawn[:, 1] = bound, -bound
    total = np.zeros(4, field.word)
    for row in drawn:
        data = field.pack(field.encode(row))
        assert len(data) == 4 * ((field.bits + 7) // 8)
        total += field.unpack(data, 4)
    total[0] += field.word.type((summands - few) * bound % 2**field.bits)  # as if all others were at the end too
    total[1] -= field.word.type((summands - few) * bound % 2**field.bits)
    expected = drawn.sum(axis=0)
    expected[:2] = summands * bound, -summands * bound
    assert field.integers(total & field.word.type(2**field.bits - 1)).tolist() == expected.tolist()


def test_floats_are_rounded_to_the_nearest_step_and_clipped() -> None:
    field = Field.floats(clip=1.0, bits=16, summands=3)
    values = np.array([1.0, -1.0, 1.7, -9.0, 0.3], np.float32)
    back = field.decode(field.encode(values), 1)
    assert back[:4].tolist() == [1.0, -1.0, 1.0, -1.0]
    assert abs(back[4] - 0.3) <= field.error


def test_whole_numbers_beyond_the_bound_and_fractions_are_refused() -> None:
    field = Field(bound=10, summands=2)
    for wrong in (np.array([11]), np.array([-11]), np.array([0.5])):
        with pytest.raises(ConfigError):
            field.encode(wrong)


def test_a_sum_beyond_what_its_clients_can_give_is_refused() -> None:
    field = Field(bound=10, summands=4)
    assert field.decode(field.encode(np.array([10])) * 3, 3).tolist() == [30.0]
    with pytest.raises(WireError, match="beyond what 2 clients"):
        field.decode(field.encode(np.array([10])) * 3, 2)


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="need 64 bits"):
        Field(bound=2**40, summands=2**22)
    with pytest.raises(ConfigError, match="bound=0"):
        Field(bound=0, summands=2)
    with pytest.raises(ConfigError, match="clip=nan"):
        Field.floats(clip=float("nan"), bits=8, summands=2)


@pytest.mark.parametrize("word", ["<u4", "<u8"])
def test_a_mask_is_the_key_stream_of_its_seed_whatever_its_length(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "_CHUNK", 64)
    monkeypatch.setattr(fields, "_ZEROS", bytes(64))
    monkeypatch.setattr(fields, "_TOGETHER", 2)
    for length in (0, 1, 16, 17, 50):
        seeds = [bytes([n]) * 32 for n in range(5)]
        streams = [
            np.frombuffer(Cipher(algorithms.AES(s), modes.CTR(bytes(16))).encryptor().update(bytes(400)), word)[:length]
            for s in seeds
        ]
        total = np.arange(length).astype(word)
        expected = total + streams[0] + streams[1] + streams[2] - streams[3] - streams[4]
        add_masks(total, seeds[:3], seeds[3:])
        assert (total == expected).all()
