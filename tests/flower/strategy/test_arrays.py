from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from tacit.errors import RunError
from tacit.flower.strategy.arrays import Shape
from tests.flower.common import start


def _with(name: str, values: Any) -> ArrayRecord:
    record = start()
    record[name] = Array(np.asarray(values))
    return record


def test_a_vector_holds_the_fractions_in_the_order_of_the_arrays() -> None:
    shape = Shape.of(start())
    assert shape.layers == (12, 2)
    assert shape.kept == ("seen",)
    vector = shape.vector(start())
    assert vector.dtype == np.float32
    np.testing.assert_allclose(vector, [*np.linspace(-1, 1, 12), 0.5, -0.25], rtol=1e-6)


def test_there_and_back_keeps_types_and_leaves_whole_numbers_alone() -> None:
    sent, shape = start(), Shape.of(start())
    update = np.arange(0.0, 1.75, 0.125, dtype=np.float32)
    moved = shape.moved(sent, update)
    assert {name: array.dtype for name, array in moved.items()} == {
        "weight": "float32",
        "bias": "float64",
        "seen": "int64",
    }
    assert moved["seen"].numpy() == 7
    np.testing.assert_array_equal(shape.update(moved, sent), update)
    np.testing.assert_array_equal(moved["bias"].numpy(), [0.5 + 12 / 8, -0.25 + 13 / 8])


def test_a_small_change_of_a_large_float64_survives() -> None:
    sent, new = _with("bias", [1e9, 0.0]), _with("bias", [1e9 + 0.5, 0.0])
    assert Shape.of(sent).update(new, sent)[12] == 0.5


def test_half_precision_and_no_dimension() -> None:
    record = ArrayRecord({"a": Array(np.asarray(np.float16(1.5))), "b": Array(np.zeros(0, np.float32))})
    shape = Shape.of(record)
    assert shape.layers == (1, 0)
    moved = shape.moved(record, np.array([0.25], np.float32))
    assert moved["a"].dtype == "float16"
    assert moved["a"].shape == ()
    assert moved["a"].numpy() == 1.75


def test_a_strategys_arrays_get_their_types_back() -> None:
    sent, shape = start(), Shape.of(start())
    averaged = ArrayRecord({name: Array(np.asarray(array.numpy() * np.float64(1.0))) for name, array in sent.items()})
    assert averaged["seen"].dtype == "float64"
    restored = shape.restored(averaged, sent)
    assert [array.dtype for array in restored.values()] == ["float32", "float64", "int64"]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        (_with("more", [1.0]), r"'more' is \(1,\), expected no such array"),
        (_with("weight", np.zeros((4, 3), np.float32)), r"'weight' is \(4, 3\), expected \(3, 4\)"),
        (ArrayRecord({"weight": start()["weight"], "bias": start()["bias"]}), "'seen' is missing"),
    ],
)
def test_what_training_must_not_give(new: ArrayRecord, message: str) -> None:
    with pytest.raises(RunError, match=message):
        Shape.of(start()).update(new, start())


def test_what_is_not_finite_stays_so_for_the_mod_to_see() -> None:
    update = Shape.of(start()).update(_with("bias", [1e300, np.nan]), start())
    assert np.isinf(update[12])
    assert np.isnan(update[13])


def test_models_that_cannot_be_protected() -> None:
    with pytest.raises(RunError, match="'c' holds complex64"):
        Shape.of(_with("c", np.zeros(2, np.complex64)))
    with pytest.raises(RunError, match="no array of floating-point"):
        Shape.of(ArrayRecord({"seen": start()["seen"]}))
    with pytest.raises(RunError, match="does not know: 'bfloat17'"):
        Shape.of(ArrayRecord({"a": Array(dtype="bfloat17", shape=(1,), stype="numpy.ndarray", data=b"")}))


def test_an_array_whose_bytes_are_damaged_is_named() -> None:
    record = ArrayRecord({"a": Array(dtype="float32", shape=(1,), stype="numpy.ndarray", data=b"nonsense")})
    with pytest.raises(RunError, match="'a' can't be read"):
        Shape.of(record).vector(record)
