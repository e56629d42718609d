from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.crypto.paillier.vector import Beyond, Layout
from tacit.crypto.ring import Rows, from_integers, to_integers
from tacit.errors import CipherError, ConfigError

CLIPS = st.floats(1e-290, 1e300)
WORDS = 63


def added(layout: Layout, *vectors: Rows) -> Rows:
    """Add packed rows as ciphertexts do: as large integers."""
    sums = [sum(row) for row in zip(*(to_integers(vector) for vector in vectors), strict=True)]
    return from_integers(sums, (layout.key_bits + 7) // 8)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draw layouts of integers with slots of every width, up to a word."""
    slot = draw(st.integers(2, WORDS))
    summands = draw(st.integers(1, 1 << draw(st.integers(0, slot - 2))))
    bound = draw(st.integers(1, max(1, ((1 << slot) - 1) // (2 * summands))))
    length, key_bits = draw(st.integers(1, 40)), draw(st.integers(65, 300))
    return Layout(length=length, bound=bound, summands=summands, key_bits=key_bits)


@given(layouts(), st.data())
def test_integers_of_a_full_sum_come_back_exactly(layout: Layout, data: st.DataObject) -> None:
    extremes = st.sampled_from([-layout.bound, layout.bound])
    integer = st.one_of(extremes, st.integers(-layout.bound, layout.bound))
    vectors = st.lists(integer, min_size=layout.length, max_size=layout.length)
    drawn = data.draw(st.lists(vectors, min_size=1, max_size=min(4, layout.summands)))
    rest = layout.summands - len(drawn)  # the other summands are all the largest there is
    packed = [layout.encode(np.array(vector), beyond="refuse")[0] for vector in drawn]
    full = from_integers(
        [rest * row for row in to_integers(layout.encode(np.full(layout.length, layout.bound))[0])],
        (layout.key_bits + 7) // 8,
    )
    sums = layout.decode(added(layout, *packed, full), layout.summands)
    assert sums.dtype == np.int64
    assert sums.tolist() == [sum(column) + rest * layout.bound for column in zip(*drawn, strict=True)]


@given(layouts())
def test_a_slot_is_as_wide_as_the_largest_sum_and_no_wider(layout: Layout) -> None:
    largest = 2 * layout.bound * layout.summands
    assert 1 << (layout.slot_bits - 1) <= largest < 1 << layout.slot_bits
    assert layout.slots * layout.slot_bits < layout.key_bits <= (layout.slots + 1) * layout.slot_bits
    assert (layout.rows - 1) * layout.slots < layout.length <= layout.rows * layout.slots


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("extra", [-1, 0, 1])
def test_vectors_of_whole_ciphertexts_and_one_more_or_less(sign: int, extra: int) -> None:
    slots = Layout.floats(length=1, clip=1.0, key_bits=256).slots
    layout = Layout.floats(length=3 * slots + extra, clip=1.0, key_bits=256)
    assert layout.rows == (4 if extra == 1 else 3)
    values = sign * np.linspace(0.0, 1.0, layout.length)
    assert np.abs(layout.decode(layout.encode(values)[0], 1) - values).max() <= layout.error(1)


@given(CLIPS, st.integers(2, 52))
def test_the_clip_itself_is_inside_and_the_next_float_is_beyond(clip: float, bits: int) -> None:
    layout = Layout.floats(length=4, clip=clip, key_bits=256, bits=bits, summands=8)
    assert clip <= layout.clip <= clip * (1 + 2.0**-50)
    packed, outside = layout.encode([clip, -clip, layout.clip, -layout.clip], beyond="refuse")
    assert outside == 0
    assert (layout.decode(packed, 1) / layout.clip).tolist() == [1.0, -1.0, 1.0, -1.0]
    above = math.nextafter(layout.clip, math.inf)
    assert layout.encode([above, -above, 0.0, clip])[1] == 2
    assert np.array_equal(layout.encode([above, -above, clip, -clip])[0], packed)
    with pytest.raises(ConfigError, match="2 of 4 numbers are beyond the clip"):
        layout.encode([above, -above, 0.0, 0.0], beyond="refuse")


@pytest.mark.parametrize(("clip", "bits"), [(0.027, 3), (0.057, 4), (0.993, 8), (0.9999999999999857, 24)])
def test_a_clip_that_rounding_would_lose_is_still_inside(clip: float, bits: int) -> None:
    bound = (1 << (bits - 1)) - 1
    assert clip / bound * bound < clip
    layout = Layout.floats(length=2, clip=clip, key_bits=256, bits=bits)
    assert layout.encode([clip, -clip], beyond="refuse")[1] == 0


@given(st.integers(2, 52), st.integers(1, 5), CLIPS, st.data())
def test_a_sum_is_within_the_stated_error(bits: int, count: int, clip: float, data: st.DataObject) -> None:
    layout = Layout.floats(length=3, clip=clip, key_bits=256, bits=bits, summands=count)
    number = st.floats(-1.5, 1.5).map(lambda share: share * clip)
    vectors = data.draw(st.lists(st.lists(number, min_size=3, max_size=3), min_size=count, max_size=count))
    packed = [layout.encode(vector)[0] for vector in vectors]
    sums = layout.decode(added(layout, *packed), count)
    for found, column in zip(sums.tolist(), zip(*vectors, strict=True), strict=True):
        exact = sum(max(-Fraction(layout.clip), min(Fraction(layout.clip), Fraction(x))) for x in column)
        assert abs(Fraction(found) - exact) <= Fraction(layout.error(count))


def test_the_error_of_many_summands_is_met() -> None:
    layout = Layout.floats(length=100, clip=1.0, key_bits=2048, summands=100)
    halves = (np.arange(100) + 0.5) * layout.step  # type: ignore[operator]  # the worst place to round
    packed = layout.encode(halves)[0]
    sums = layout.decode(added(layout, *[packed] * 100), 100)
    error = np.abs(sums - 100 * halves)
    assert 0.9 * layout.error(100) < error.max() <= layout.error(100)


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64])
def test_integers_of_every_type_are_clipped_and_counted(dtype: type[np.integer]) -> None:
    values = np.array([np.iinfo(dtype).min, 0, 1, 100, 101, np.iinfo(dtype).max], dtype)
    expected = [max(-100, min(100, int(value))) for value in values]
    layout = Layout(length=6, bound=100, summands=3, key_bits=128)
    packed, outside = layout.encode(values)
    assert layout.decode(packed, 1).tolist() == expected
    assert outside == sum(abs(int(value)) > 100 for value in values)
    wide = Layout(length=6, bound=1 << 60, summands=1, key_bits=128)
    assert wide.decode(wide.encode(values[:5].repeat([1, 1, 1, 1, 2]))[0], 1).tolist() == [
        max(-(1 << 60), int(value)) for value in values[:5].repeat([1, 1, 1, 1, 2])
    ]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble, np.int32])
def test_floats_of_every_type_are_taken(dtype: type[np.number]) -> None:
    layout = Layout.floats(length=3, clip=2.0, key_bits=128)
    decoded = layout.decode(layout.encode(np.array([-1, 0, 2], dtype))[0], 1)
    assert np.abs(decoded - [-1, 0, 2]).max() <= layout.error(1)


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("beyond", ["clip", "refuse"])
def test_a_vector_that_is_not_finite_is_refused_and_the_place_named(wrong: float, beyond: Beyond) -> None:
    layout = Layout.floats(length=3, clip=1.0, key_bits=128)
    with pytest.raises(ConfigError, match="Number 1 of the vector is"):
        layout.encode([0.0, wrong, 0.0], beyond=beyond)


def test_numbers_far_beyond_a_tiny_clip_are_clipped_without_overflow() -> None:
    layout = Layout.floats(length=2, clip=1e-290, key_bits=128)
    packed, outside = layout.encode([1e308, -1e308])
    assert outside == 2
    assert layout.decode(packed, 1).tolist() == [layout.clip, -layout.clip]


@pytest.mark.parametrize("values", [[1.0, 2.0], [[1.0, 2.0, 3.0]], 1.0, [1.0, 2.0, 3.0, 4.0]])
def test_a_vector_of_another_shape_is_refused(values: object) -> None:
    with pytest.raises(ConfigError, match="Expected a vector of 3 numbers"):
        Layout.floats(length=3, clip=1.0, key_bits=128).encode(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("values", [["a", "b"], [1j, 2j], [True, False], [None, None]])
def test_what_is_no_number_is_refused(values: list[object]) -> None:
    with pytest.raises(ConfigError, match="Expected numbers"):
        Layout.floats(length=2, clip=1.0, key_bits=128).encode(np.array(values))


def test_floats_do_not_become_integers_unseen() -> None:
    with pytest.raises(ConfigError, match="Expected whole numbers"):
        Layout(length=2, bound=5, summands=1, key_bits=128).encode([1.0, 2.0])


LAYOUT = Layout(length=5, bound=10, summands=4, key_bits=65)  # slots of 7 bits: 9 fit


@pytest.mark.parametrize("summands", [0, -1, 5, 1 << 70])
def test_a_sum_of_more_than_the_layout_allows_is_refused(summands: int) -> None:
    with pytest.raises(CipherError, match="summands, expected 1 to 4"):
        LAYOUT.decode(LAYOUT.encode(np.zeros(5, np.int64))[0], summands)


@pytest.mark.parametrize("summands", [1, 2, 3, 4])
def test_the_largest_slot_passes_and_one_more_is_refused(summands: int) -> None:
    top = 2 * 10 * summands
    assert LAYOUT.decode(from_integers([top << 14], 9), summands).tolist()[2] == 10 * summands
    with pytest.raises(CipherError, match=f"number 2 is {top + 1}, expected slots of at most {top}"):
        LAYOUT.decode(from_integers([(top + 1) << 14], 9), summands)


@pytest.mark.parametrize("place", [35, 62, 63, 64, 71])
def test_a_bit_outside_the_slots_is_refused(place: int) -> None:
    with pytest.raises(CipherError, match="a bit is set outside the slots"):
        LAYOUT.decode(from_integers([1 << place], 9), 4)


@pytest.mark.parametrize(
    "settings",
    [
        {"length": 0},
        {"length": -3},
        {"bound": 0},
        {"summands": 0},
        {"bound": 1 << 60},  # the sum needs 64 bits
        {"summands": 1 << 62},
        {"bound": 10**400},
        {"key_bits": 6},
        {"key_bits": 0},
        {"step": 0.0},
        {"step": -1.0},
        {"step": math.nan},
        {"step": math.inf},
        {"step": 1e308},  # the largest sum is infinite
        {"length": 2.5},
    ],
)
def test_a_layout_that_makes_no_sense_is_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Layout(**{"length": 5, "bound": 10, "summands": 4, "key_bits": 128, **settings})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings", [{"bits": 1}, {"bits": 53}, {"clip": 0.0}, {"clip": -1.0}, {"clip": math.nan}, {"clip": 5e-324}]
)
def test_floats_that_can_not_be_written_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        Layout.floats(**{"length": 5, "clip": 1.0, "key_bits": 128, **settings})  # type: ignore[arg-type]


def test_the_widest_slot_and_the_narrowest() -> None:
    widest = Layout(length=2, bound=(1 << 62) - 1, summands=1, key_bits=64)
    assert (widest.slot_bits, widest.slots) == (63, 1)
    ends = np.array([widest.bound, -widest.bound])
    assert np.array_equal(widest.decode(widest.encode(ends)[0], 1), ends)
    narrowest = Layout(length=100, bound=1, summands=1, key_bits=65)
    assert (narrowest.slot_bits, narrowest.slots, narrowest.rows) == (2, 32, 4)
    signs = np.resize([1, 0, -1], 100)
    assert np.array_equal(narrowest.decode(narrowest.encode(signs)[0], 1), signs)


@pytest.mark.parametrize(
    ("bits", "summands", "at_2048", "at_3072"),
    [(16, 128, 89, 133), (20, 128, 75, 113), (24, 128, 66, 99), (32, 128, 52, 78), (24, 1024, 60, 90)],
)
def test_slots_of_the_usual_keys(bits: int, summands: int, at_2048: int, at_3072: int) -> None:
    for key_bits, slots in ((2048, at_2048), (3072, at_3072)):
        layout = Layout.floats(length=1, clip=1.0, bits=bits, summands=summands, key_bits=key_bits)
        assert layout.slots == slots


@given(layouts(), st.one_of(st.none(), st.floats(1e-300, 1e280)))
def test_a_layout_travels(layout: Layout, step: float | None) -> None:
    sent = Layout(
        length=layout.length, bound=layout.bound, summands=layout.summands, key_bits=layout.key_bits, step=step
    )
    assert Layout.from_bytes(sent.to_bytes()) == sent
    assert len(sent.to_bytes()) == 37


@given(st.binary(max_size=80) | st.binary(min_size=37, max_size=37))
def test_arbitrary_bytes_are_a_cipher_error_or_exactly_a_layout(data: bytes) -> None:
    try:
        layout = Layout.from_bytes(data)
    except CipherError:
        return
    assert layout.to_bytes() == data


@pytest.mark.parametrize("step", [None, 0.5])
def test_every_flipped_bit_is_another_layout_or_an_error(step: float | None) -> None:
    layout = Layout(length=5, bound=10, summands=4, key_bits=128, step=step)
    data = layout.to_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            read = Layout.from_bytes(bytes(flipped))
        except CipherError:
            continue
        assert read != layout
        assert read.to_bytes() == flipped


def test_slots_wider_than_a_word_say_what_to_lower() -> None:
    with pytest.raises(ConfigError, match="Use fewer bits per number, or allow fewer summands"):
        Layout.floats(length=2, clip=1.0, bits=24, summands=2**50, key_bits=512)
