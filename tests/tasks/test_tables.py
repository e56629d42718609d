"""CSV files and tables of one's own: what becomes of columns, where constants come from, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.errors import ConfigError, DataError
from tacit.report.run.curves import rounds_csv
from tacit.report.run.page import run_page
from tacit.runs import history
from tacit.tasks.tables import Encoding, every_fifth, load_csv, read_csv

HEADER = "id,hospital,age,sex,outcome"
COLUMNS = "age: [18, 90]\nsex: [f, m]\noutcome: [healthy, ill]\n"


def _line(number: int) -> str:
    hospital = ("north", "south", "west")[number % 3]
    age, sex = 20 + (number * 7) % 70, "fm"[number % 2]
    told = "" if number % 11 == 0 else str(age)
    return f"p{number},{hospital},{told},{'?' if number % 13 == 0 else sex},{'ill' if age > 55 else 'healthy'}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "my.csv"
    file.write_text("\n".join([HEADER, *map(_line, range(240))]) + "\n")
    (tmp_path / "columns.yaml").write_text(COLUMNS)
    return file


def test_a_file_becomes_features_classes_and_clients(path: Path) -> None:
    data, encoding = load_csv(path, label="outcome", client="hospital", left_out=["id"])
    assert (data.classes, encoding.classes, data.group_names) == (2, ("healthy", "ill"), ("north", "south", "west"))
    assert encoding.source == "the training rows"
    assert len(data.train) + len(data.test) == 240
    assert len(data.test) == pytest.approx(48, abs=6)
    assert data.train.features.shape[1] == 3  # the age, and two sexes
    assert set(np.unique(data.train.features[:, 1:])) == {0.0, 1.0}
    missing = data.train.features[:, 1:].sum(1) == 0
    assert missing.any()
    assert (data.train.features[:, 0] == 0).any()  # a missing age is the centre


def test_public_constants_come_from_the_description_or_the_test_file(path: Path) -> None:
    columns = path.parent / "columns.yaml"
    data, encoding = load_csv(path, label="outcome", left_out=["id", "hospital"], description=columns, private=True)
    assert encoding.source == "a public description"
    assert float(np.abs(data.train.features).max()) <= 1.0
    test = path.parent / "test.csv"
    test.write_text("\n".join([HEADER, *map(_line, range(300, 360))]) + "\n")
    data, encoding = load_csv(path, label="outcome", left_out=["id", "hospital"], test=test, private=True)
    assert encoding.source == "the public test rows"
    assert (len(data.train), len(data.test)) == (240, 60)


@pytest.mark.parametrize("more", [{"left_out": ["id", "hospital"]}, {"client": "hospital", "left_out": ["id"]}])
def test_constants_of_private_rows_are_refused(path: Path, more: dict[str, object]) -> None:
    words = r"'age', 'sex', 'outcome' would be read off the private rows.*columns=FILE\.yaml.*test=FILE\.csv"
    with pytest.raises(ConfigError, match=words):
        load_csv(path, label="outcome", private=True, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no rows. Expected a line of column names, and a line per row"),
        ("a,b\n", "holds no rows"),
        ("a,a\n1,2\n", "name every column once"),
        ("a,b\n1\n", "Expected 2 values in line 2"),
        ('a,b\n"1,2\n', "is no CSV file"),
        ("a,outcome\n1,\n", "rows without a label"),
        ("a,outcome\n1,x\n2,x\n", "holds one class only"),
        ("outcome\nx\ny\n", "no column beside 'outcome'"),
        ("a,outcome\n" + "".join(f"{n},{n}.5\n" for n in range(1100)), "1100 different labels, expected classes"),
        ("a,outcome\n" + "".join(f"n{n},{n % 2}\n" for n in range(200)), r"200 different texts.*data\.drop"),
        ("a,outcome\n1,x\n2,y\n", "too few rows to hold some out"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(DataError, match=words):
        load_csv(tmp_path / "bad.csv", label="outcome")


def test_columns_that_are_not_there_are_named(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the column that is to be predicted: --label, one of 'id', 'hospital'"):
        load_csv(path, label=None)
    with pytest.raises(ConfigError, match="no column 'result' for the label"):
        load_csv(path, label="result")
    with pytest.raises(ConfigError, match="no column 'clinic' for the clients"):
        load_csv(path, label="outcome", client="clinic")
    with pytest.raises(DataError, match="There is no file"):
        read_csv(tmp_path / "none.csv")
    (tmp_path / "latin.csv").write_bytes("a,b\n\xe9,1\n".encode("latin-1"))
    with pytest.raises(DataError, match="not text in UTF-8"):
        read_csv(tmp_path / "latin.csv")
    (tmp_path / "wrong.yaml").write_text("outcome: [no, yes]\n")
    with pytest.raises(ConfigError, match="YAML reads yes"):
        load_csv(path, label="outcome", description=tmp_path / "wrong.yaml")
    (tmp_path / "wrong.yaml").write_text("3\n")
    with pytest.raises(ConfigError, match="a range or the categories of columns"):
        load_csv(path, label="outcome", description=tmp_path / "wrong.yaml")


def test_other_separators_and_a_byte_order_mark_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("\ufeffa;b\r\n1;x\r\n 2 ;y\r\n".encode())
    assert read_csv(tmp_path / "a.csv") == {"a": ["1", "2"], "b": ["x", "y"]}


def test_an_encoding_goes_through_plain_containers(path: Path) -> None:
    table = {"age": ["30", ""], "sex": ["f", "m"]}
    encoding = Encoding.of(table, labels=[0, 1], described={"age": [20, 60]})
    again = Encoding.from_plain(encoding.to_plain())
    assert again == encoding
    assert again.features(table).tolist() == encoding.features(table).tolist()
    with pytest.raises(DataError, match="Column 'age' is missing"):
        encoding.features({"sex": ["f"]})
    with pytest.raises(DataError, match="'age' holds numbers elsewhere, and 'old' here"):
        encoding.features({"age": ["old"], "sex": ["f"]})
    with pytest.raises(DataError, match="label '2' of somebody is not among the classes 0, 1"):
        encoding.labels(["2"], "somebody")


def test_a_run_on_a_file_is_kept_told_of_and_loaded(path: Path) -> None:
    folder = path.parent / "run"
    data = {"name": str(path), "label": "outcome", "client": "hospital", "drop": "id"}
    evaluate = {"metrics": "auc,per-class", "clients": True}
    config = tacit.RunConfig(data=data, federate={"rounds": 5}, evaluate=evaluate, seed=1, out=folder)
    result = tacit.run(config, quiet=True)
    assert (result.dataset, result.split, result.model, result.clients) == ("my.csv", "natural", "logistic", 3)
    assert result.client_names == ("north", "south", "west")
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.8
    assert any("constants from the training rows" in note for note in result.notes)
    assert list(result.client_scores) == ["north", "south", "west"]
    assert list(result.client_scores["north"]) == ["loss", "accuracy", "auc", "accuracy of healthy", "accuracy of ill"]
    told = history.read(folder)
    assert told.own_data
    page = run_page(told).html()
    for words in ("north, south, west", "Metrics of the test data", "Test accuracy of each class", "accuracy of ill"):
        assert words in page
    assert ",auc,accuracy of healthy,accuracy of ill,seconds_" in rounds_csv(told, full=False).splitlines()[0]
    loaded = tacit.load(folder)
    assert set(loaded.predict(path)) == {"healthy", "ill"}
    assert loaded.evaluate(str(path))["accuracy"] > 0.8
    (folder / "result.json").unlink()
    assert tacit.resume(folder, quiet=True).test_accuracy == result.test_accuracy


@pytest.mark.parametrize("mode", ["dp", "paillier"])
def test_no_score_on_one_client_where_a_mode_hides_it(path: Path, mode: str) -> None:
    data = {"name": str(path), "label": "outcome", "client": "hospital", "columns": str(path.parent / "columns.yaml")}
    dp = {"dp": {"noise": 1.0}} if mode == "dp" else {}
    config = tacit.RunConfig(data=data | {"drop": "id"}, mode=mode, evaluate={"clients": True}, **dp)
    with pytest.raises(ConfigError, match="single client's data is not to be told"):
        tacit.run(config, quiet=True)


def test_a_private_run_on_a_file_tells_no_counts_and_no_names(path: Path) -> None:
    folder = path.parent / "run"
    data = {"name": str(path), "label": "outcome", "client": "hospital", "drop": "id"}
    described = data | {"columns": str(path.parent / "columns.yaml")}
    config = tacit.RunConfig(data=described, mode="dp", dp={"noise": 1.0}, federate={"rounds": 1}, seed=1, out=folder)
    result = tacit.run(config, quiet=True)
    assert result.client_names == ()
    assert any("those rows count as public" in note for note in result.notes)
    told = history.read(folder)
    assert told.start.split is None
    assert told.start.client_names is None
    assert "north" not in (folder / "journal.jsonl").read_text()
    with pytest.raises(ConfigError, match="private rows"):
        tacit.run(tacit.RunConfig(data=data, mode="dp", dp={"noise": 1.0}), quiet=True)
    by_examples = {"data": described, "mode": "dp-sgd", "dpsgd": {"noise": 1.0}, "federate": {"rounds": 1}, "seed": 1}
    assert tacit.run(tacit.RunConfig(**by_examples), quiet=True).client_names == ("north", "south", "west")


def test_what_is_for_files_is_refused_for_other_data() -> None:
    with pytest.raises(ConfigError, match=r"data\.label, data\.drop is for CSV files, and data\.name=digits is not"):
        tacit.run(tacit.RunConfig(data={"name": "digits", "label": "x", "drop": "a,b"}), quiet=True)


@pytest.mark.parametrize("known", [[18, float("inf")], [float("-inf"), 90], [float("nan"), 90], [90, 18]])
def test_a_range_without_ends_is_refused(known: list[float]) -> None:
    with pytest.raises(ConfigError, match="Expected a range"):
        Encoding.of({"age": ["30"]}, labels=["a", "b"], described={"age": known})


def test_numbers_as_large_as_floats_are_never_infinite_features() -> None:
    """A slip of the pen in one row costs that row, and no run."""
    wide = Encoding.of({"age": ["1"]}, labels=["a", "b"], described={"age": [-1.7e308, 1.7e308]})
    assert wide.features({"age": ["1.7e308", "", "-1.7e308", "0"]}).ravel().tolist() == [1.0, 0.0, -1.0, 0.0]
    read = Encoding.of({"age": ["30", "50", "40"]}, labels=["a", "b"])
    assert read.features({"age": ["1e300", "-1e39", "40"]}).ravel().tolist() == [1e6, -1e6, 0.0]
    with pytest.raises(DataError, match=r"'age' holds numbers as large as 1e\+300, which have no finite spread"):
        Encoding.of({"age": ["30", "1e300"]}, labels=["a", "b"])


def test_every_fifth_of_each_stratum_is_held_out() -> None:
    strata = np.random.default_rng(1).integers(0, 9, 200) * 7
    expected = np.zeros(200, bool)
    for stratum in set(strata.tolist()):
        expected[np.flatnonzero(strata == stratum)[4::5]] = True
    assert np.array_equal(every_fifth(strata), expected)
    assert not every_fifth(np.arange(30)).any()
