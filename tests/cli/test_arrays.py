from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tacit.cli import arrays
from tacit.errors import ConfigError, StorageError


def test_an_output_that_is_there_is_refused_before_and_after_the_work(tmp_path: Path) -> None:
    path = tmp_path / "out"
    arrays.check_output(path, force=False)
    path.write_bytes(b"old")  # such as by somebody else, meanwhile
    with pytest.raises(StorageError, match=r"is there already and is left as it was\. Nothing was written"):
        arrays.write_output(path, b"new", force=False)
    with pytest.raises(ConfigError, match="or replace it with --force"):
        arrays.check_output(path, force=False)
    assert path.read_bytes() == b"old"
    arrays.check_output(path, force=True)
    arrays.write_output(path, b"new", force=True)
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_flattened_row_by_row(tmp_path: Path, order: str) -> None:
    np.save(tmp_path / "a.npy", np.array([[1.0, 2.0], [3.0, 4.0]], order=order))  # type: ignore[call-overload]
    flat, shape = arrays.read_vector(tmp_path / "a.npy")
    assert (flat.tolist(), shape) == ([1.0, 2.0, 3.0, 4.0], (2, 2))


def test_a_single_number(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float32(0.5))
    flat, shape = arrays.read_vector(tmp_path / "a.npy")
    assert flat.tolist() == [0.5]
    assert flat.dtype == np.float64
    assert not shape


def test_what_is_written_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(arrays.npy_bytes(np.arange(4)))
    assert arrays.read_vector(tmp_path / "a.npy")[0].tolist() == [0, 1, 2, 3]
