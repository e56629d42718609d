"""Features of data sets: kept in the cache, the same with and without it, and refused where there are no images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.errors import ConfigError
from tacit.runs.run import run
from tacit.tasks.data import DataSet, Examples
from tacit.tasks.features import Features
from tests.runs.common import digits

CPU = torch.device("cpu")
SCATTER = Features(kind="scatter", scales=1, angles=4)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    return tmp_path / "features"


def images(count: int = 6, side: int = 8) -> DataSet:
    generator = np.random.default_rng(1)

    def part(size: int) -> Examples:
        return Examples(
            features=generator.random((size, 1, side, side), np.float32), labels=np.arange(size, dtype=np.int64) % 2
        )

    return DataSet(name="squares", title="", classes=2, train=part(count), test=part(2), origin="", licence="")


def test_they_are_computed_once_and_are_the_same_from_the_cache(cache: Path) -> None:
    notes: list[str] = []
    first = SCATTER.of_data(images(), CPU, notes.append)
    assert first.train.features.shape == (6, 5, 4, 4)
    assert len(list(cache.glob("*.npy"))) == 2
    again = SCATTER.of_data(images(), CPU, notes.append)
    assert again.train.features.tobytes() == first.train.features.tobytes()
    assert again.test.features.tobytes() == first.test.features.tobytes()
    assert [note for note in notes if "6 images" in note] == notes[:1]


@pytest.mark.parametrize("damage", [b"", b"no array", b"\x93NUMPY"])
def test_a_damaged_cache_is_computed_anew(cache: Path, damage: bytes) -> None:
    first = SCATTER.of_data(images(), CPU, lambda _: None)
    for file in cache.glob("*.npy"):
        file.write_bytes(damage)
    again = SCATTER.of_data(images(), CPU, lambda _: None)
    assert again.train.features.tobytes() == first.train.features.tobytes()


def test_other_settings_and_other_images_have_other_files(cache: Path) -> None:
    for features in (SCATTER, Features(kind="scatter", scales=1, angles=6)):
        features.of_data(images(), CPU, lambda _: None)
    SCATTER.of_data(images(count=7), CPU, lambda _: None)
    assert len(list(cache.glob("*.npy"))) == 6


def test_without_a_cache_that_can_be_written_they_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TACIT_CACHE", str(blocked))
    assert SCATTER.of_data(images(), CPU, lambda _: None).train.features.shape == (6, 5, 4, 4)


def test_none_leaves_images_alone() -> None:
    data = images()
    assert Features().of_data(data, CPU, pytest.fail) is data


@pytest.mark.usefixtures("cache")
def test_tables_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"data.features=scatter is for images .* digits has shape \(64,\)"):
        run(digits(data={"features": "scatter"}))
