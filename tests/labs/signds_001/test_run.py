from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit_labs.harness import catalogue, files
from tacit_labs.harness.experiment import Reproduction, Settings, silent
from tacit_labs.harness.learning import learned
from tacit_labs.harness.record import Outcome, recorded
from tacit_labs.signds_001 import measured, run
from tacit_labs.signds_001.measured import at_their_size
from tests.labs.common_learning import stand_in

MNIST = replace(run.MNIST, clients=10, rounds=2)
WRITERS = replace(run.WRITERS, clients=4, rounds=2, local_epochs=1, batch_size=8)
SAMPLED = replace(WRITERS, per_round=2)
SOURCE = Path(__file__).parents[4] / "shared" / "sources" / "001_52447155210e6a81.txt"


def reproduced(tmp_path: Path, task: run.Task, *, quick: bool = False) -> Reproduction:
    return run.reproduce(task, Settings(quick=quick, out=tmp_path), silent)


def test_the_full_run_has_the_documents_settings() -> None:
    task = run.WRITERS
    assert (task.clients, task.rounds, task.local_epochs, task.lr) == (100, 600, 20, 0.01)
    documented = task.settings(measured.DOCUMENTED, Settings())
    assert documented["mode"] == "signds"
    assert documented["signds"] == {"sign_k": 0.2, "sign_global_lr": 4.0}  # eps, ratio and out are the defaults
    assert documented["evaluate"]["every"] == 10  # so that round 200 is looked at


def test_what_is_quoted_stands_in_the_document() -> None:
    if not SOURCE.exists():
        pytest.skip("the source documents are not beside the checkout")
    text = SOURCE.read_text(errors="replace")
    for words in (
        "100 client datasets of `3500_clients_bin`, 600 iterations of federated aggregation",
        "k=0.2, eps=100, ratio=0.6, lr=4, out=0",
        "Loss and Auc",
        "266,084",
        "only 656",
        "20 epochs run locally per client",
        "Taking LeNet task as an example",
        "The output will have fewer dimensions",
        "output dimensions decrease, the percentage remains the same",
        "Increasing will reduce the output dimension",
        "the proportion of dimensions from `topk` will decrease",
    ):
        assert words in text, words
    assert "66.5" not in text  # nor 69%: they are from an earlier edition
    assert "69%" not in text


def test_uploads_at_the_documents_size_are_those_of_the_plan() -> None:
    few, many = at_their_size()
    assert (many.chosen, many.sent, many.integers) == (176, 228, 704)
    assert (few.chosen, few.sent, few.integers) == (43, 73, 172)
    assert many.integers > measured.QUOTED_SENT > few.integers


def test_femnist_is_compared_with_the_document_and_its_earlier_edition(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch)
    monkeypatch.setattr("tacit_labs.signds_001.page.EARLIER_ROUNDS", 2)
    made = reproduced(tmp_path, WRITERS)
    ways = made.data["tasks"]["femnist"]["ways"]
    assert list(ways) == [measured.PLAIN, measured.DOCUMENTED]
    assert ways[measured.PLAIN]["bytes_up_per_client_and_round"] > 4 * 60_000
    assert ways[measured.DOCUMENTED]["bytes_up_per_client_and_round"] < 300
    assert ways[measured.DOCUMENTED]["epsilon"] == 2 * 105
    assert len(ways[measured.PLAIN]["curve"]) == 2
    said = {found.what: found for found in made.findings}
    assert said["length of an upload"].original == "“266,084 … only 656”, without a unit: 406 times less"
    assert "bytes" not in said["length of an upload"].original
    assert "266,084 = 4 × 66,404 + 468" in said["what the two lengths may be"].ours
    assert "epsilon 210 after 2 rounds" in said["privacy"].ours
    assert "4 clients" in made.settings
    (origin,) = (one for one in made.sections if one.title == "Where 69% and 66.5% come from")
    table = origin.parts[1]
    assert [row[:2] for row in table.rows] == [  # type: ignore[union-attr]
        (measured.PLAIN, "69.00%"),
        (measured.DOCUMENTED, "66.50%"),
    ]
    assert all(row[2] != "not looked at" for row in table.rows)  # type: ignore[union-attr]


@pytest.mark.parametrize("femnist", [True, False])
def test_femnist_is_run_where_it_is_found_and_mnist_elsewhere(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, femnist: bool
) -> None:
    stand_in(monkeypatch, femnist=femnist)
    monkeypatch.setattr(run, "SAMPLED", SAMPLED)  # on a CPU
    monkeypatch.setattr(run, "MNIST", MNIST)
    made = run.run(Settings(out=tmp_path), silent)
    assert list(made.data["tasks"]) == ["femnist" if femnist else "mnist"]
    assert ("4 clients, 2 of them in each of 2 rounds" in made.settings) == femnist
    assert ("the document does not say" in made.settings) == femnist
    assert ("TACIT_DATA" in made.settings) != femnist
    assert any(found.ours == "not run" for found in made.findings) != femnist
    assert made.smaller == ""


def test_the_quick_form_names_what_is_smaller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, femnist=False)
    made = reproduced(tmp_path, MNIST, quick=True)
    assert "MNIST instead of the document's FEMNIST, and 2 rounds instead of 600" in made.smaller
    assert run.reproduce.__module__ == catalogue.MODULES["signds-001"]
    assert not any(found.ours == "not run" for found in made.findings)
    outcome = Outcome(
        experiment=run.EXPERIMENT,
        reproduction=made,
        record=recorded(Settings(quick=True, out=tmp_path), 1.0),
    )
    paths = files.write(outcome, tmp_path / "page")
    html = (tmp_path / "page" / "signds-001.html").read_text()
    assert "Quick run" in html
    assert "Test accuracy" in html
    kept = json.loads((tmp_path / "page" / "signds-001.json").read_text())
    assert kept["data"]["quoted"]["upload_signds"] == 656
    assert len(paths) == 5


def test_a_finished_run_is_read_and_another_setting_is_run_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(monkeypatch)
    settings = Settings(out=tmp_path)
    ways = {way: MNIST.settings(way, settings) for way in run.WAYS}
    first = learned(ways, tmp_path, what="digits", progress=silent, workers=1)
    monkeypatch.setattr("tacit.runs.run.run", lambda *_args, **_options: pytest.fail("it was run again"))
    again = learned(ways, tmp_path, what="digits", progress=silent, workers=1)
    assert again == first
    monkeypatch.undo()
    stand_in(monkeypatch)
    longer = {way: replace(MNIST, rounds=3).settings(way, settings) for way in run.WAYS}
    seen = []
    other = learned(
        longer, tmp_path, what="digits", progress=lambda what, **numbers: seen.append((what, numbers)), workers=1
    )
    assert [len(result.rounds) for result in other.values()] == [3, 3]
    assert seen[-1] == ("digits, rounds", {"done": 6, "total": 6})
