"""The benchmark of models: what it trains is in the forms that it says, and its loop is the same training."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tacit.errors import ConfigError, DataError
from tacit_labs.bench.documented.models import few, page, real, rounds, run, steps
from tacit_labs.bench.documented.models.zoo import ZOO

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", [name for name in ZOO if name != "resnet18"])
def test_every_model_takes_its_data(name: str) -> None:
    features, labels = ZOO[name].data(3)
    outputs = ZOO[name].build()(features)
    assert outputs.shape == (3, ZOO[name].classes)
    assert int(labels.max()) < ZOO[name].classes
    assert len(torch.unique(outputs, dim=0)) == 3  # it looks at its examples


@pytest.mark.parametrize("name", list(few.OTHERS))
def test_every_other_model_takes_its_data(name: str) -> None:
    features, labels = few.OTHERS[name].data(3)
    outputs = few.OTHERS[name].build()(features)
    assert outputs.shape == (3, few.OTHERS[name].classes)
    assert int(labels.max()) < few.OTHERS[name].classes


def test_few_clients_are_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(few, "OTHERS", {"digits": few.OTHERS["digits"]})
    size = rounds.Size(clients=3, examples=4, batch=2, timed=3)
    monkeypatch.setattr(few, "sizes", lambda *, quick: {"three": size} if quick else {})
    results = run.measure(parts=["few"], quick=True)
    assert results["few"]["digits, three"]["faster"] > 0
    assert "digits, three           3 x 4, batch 2 " in run.table(results)
    gpu = json.loads((ROOT / "benchmarks/results/models_gpu.json").read_text())
    shown = page.table({**gpu, "few": {"digits, three": {"faster": 1.234}}}, gpu)
    assert "| perceptron 64-32-10 | – | 1.23x | – | – |" in shown
    assert "few clients" not in page.table({**gpu, "few": {}}, gpu)


def test_few_clients_are_fewer_and_smaller_where_it_has_to_be_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def measured(*given: Any, repeats: int) -> dict[str, Any]:
        asked.append((len(given[1].labels), repeats))
        return {}

    monkeypatch.setattr(few, "OTHERS", {"digits": few.OTHERS["digits"]})
    monkeypatch.setattr(rounds, "measure", measured)
    run.measure(parts=["few"], quick=True)
    assert asked == [(64, 1), (192, 1)]
    assert few.sizes(quick=False) is few.SIZES


def test_a_round_and_a_step_are_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    size = rounds.Size(clients=4, examples=4, batch=2, timed=2)
    monkeypatch.setattr(rounds, "sizes", lambda *_, **__: {"small": size})
    monkeypatch.setattr(steps, "_BEFORE", 2)  # no program is made
    seen: list[Any] = []
    results = run.measure(
        models=["adult"], parts=["rounds", "steps"], quick=True, so_far=lambda found: seen.append(len(found["rounds"]))
    )
    row = results["rounds"]["adult, small"]
    assert row["seconds"]["tacit"] > 0 < row["faster"]
    assert row["form"] in ("vmap", "loop")
    assert results["steps"]["adult"]["form"] == "book-keeping"
    assert results["steps"]["adult"]["ratio"]["plain"] == 1.0
    assert seen == [1, 1]
    assert "adult, small            4 x 4, batch 2 " in run.table(results)


def test_real_clients_are_of_unequal_size(tmp_path: Path) -> None:
    plays = tmp_path / "plays.txt"
    plays.write_text(
        "ANNA:\n" + 5 * "To be or not to be, " + "\n\nBOB:\n" + 9 * "that is the question " + "\n\nCY:\nNo."
    )
    spoken = real.speakers(plays)
    assert [len(own) for own in spoken.rows] == [2, 4]
    assert spoken.words == "2 speakers of 2 to 4, batch 10"
    table = tmp_path / "adult.data"
    line = "39, Private, 77516, {school}, 13, Divorced, {trade}, Unmarried, White, Male, 2174, 0, 40, Cuba, {more}\n"
    people = [("Sales", "HS-grad", "<=50K"), ("Sales", "Masters", ">50K"), ("Sales", "HS-grad", ">50K")] * 2
    table.write_text("".join(line.format(trade=t, school=s, more=m) for t, s, m in people) + "\n")
    worked = real.trades(table)
    assert [len(own) for own in worked.rows] == [4, 2]
    assert worked.labels[worked.rows[1]].tolist() == [1, 1]
    found = run.measure(models=["adult"], parts=["real"], text=plays, table=table, quick=True)
    assert found["real"].keys() == {"adult"}
    assert "2 trades of 2 to 4, batch 10" in run.table(found)


def test_files_without_clients_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_text("nothing\n")
    with pytest.raises(DataError, match="Nobody speaks in"):
        real.speakers(path)
    with pytest.raises(DataError, match="15 columns"):
        real.trades(path)
    path.write_text("ANNA:\n" + 3 * "".join(chr(48 + n) for n in range(90)))
    with pytest.raises(DataError, match="different characters, expected 80"):
        real.speakers(path)
    for wrong in (path, tmp_path / "table.gz"):
        wrong.write_bytes(b"\xa8\xb4\x00")
    with pytest.raises(DataError, match="is no text"):
        real.speakers(path)
    for wrong in (path, tmp_path / "table.gz"):
        with pytest.raises(DataError, match="can't be read"):
            real.trades(wrong)
    path.write_text(", ".join(["x"] * 15))
    with pytest.raises(DataError, match="can't be read"):
        real.trades(path)


def test_a_model_that_fails_does_not_cost_the_others_their_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory\nmore")

    monkeypatch.setattr(rounds, "measure", fails)
    results = run.measure(models=["adult"], parts=["rounds"], quick=True)
    assert results["rounds"]["adult, small"] == {"failed": "RuntimeError: out of memory"}
    assert "failed: RuntimeError: out of memory" in run.table(results)


@pytest.mark.parametrize("wrong", [{"models": ["bert"]}, {"parts": ["epochs"]}, {"gpu": 99}, {"parts": ["real"]}])
def test_what_does_not_exist_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"bert|epochs|99|--text"):
        run.measure(**wrong)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"parts": ["few"], "models": ["adult"]}, r"Part few has models of its own, and adult is none.*: linear, "),
        (
            {"parts": ["real"], "models": ["adult"], "text": Path("plays")},
            r"no clients for adult: .* trades \(--table\) adult",
        ),
        (
            {"parts": ["real"], "models": ["lstm"], "table": Path("adult.data")},
            r"no clients for lstm: speakers \(--text\) train lstm",
        ),
    ],
)
def test_models_that_a_part_does_not_train_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run.measure(**wrong)


def test_the_documentation_has_the_tables_of_the_results() -> None:
    kept = [
        json.loads((ROOT / "benchmarks" / "results" / name).read_text()) for name in ("models.json", "models_gpu.json")
    ]
    for path, table in ((ROOT / "docs" / "benchmarks.md", page.table), (ROOT / "README.md", page.short)):
        text = path.read_text()
        assert page.filled(text, table(*kept)) == text
