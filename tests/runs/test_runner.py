from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.numpy import load_file

import tacit
from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError, DataError, DropoutError, RunError, StorageError
from tacit.runs import journal
from tacit.runs.folder import CHECKPOINT, CONFIG, JOURNAL, MODEL, RESULT, Checkpoint
from tacit.runs.result import Result
from tacit.runs.run import run
from tests.runs.common import Watching, digits, finite, lines, unchecked, weights

FIELDS = [
    "mode",
    "engine",
    "dataset",
    "model",
    "parameters",
    "clients",
    "per_round",
    "seed",
    "simulation",
    "rounds",
    "test_accuracy",
    "train_accuracy",
    "test_loss",
    "seconds",
    "setup_seconds",
    "bytes_up",
    "bytes_down",
    "privacy",
]
ROUND_FIELDS = [
    "round",
    "train_loss",
    "test_loss",
    "test_accuracy",
    "clients_replied",
    "bytes_up",
    "bytes_down",
    "epsilon",
    "seconds",
]


def _types(out: Path) -> list[str]:
    return [record["type"] for record in lines(out / JOURNAL)]


def test_a_run_leaves_its_five_files_and_the_promised_fields(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run(digits(out=out))
    assert sorted(path.name for path in out.iterdir()) == sorted([CONFIG, JOURNAL, CHECKPOINT, MODEL, RESULT])
    text = (out / RESULT).read_text()
    values = json.loads(text, parse_constant=pytest.fail)  # NaN and Infinity are no JSON
    assert set(FIELDS) <= values.keys()
    assert all(set(ROUND_FIELDS) <= record.keys() for record in values["rounds"])
    assert all(
        record["seconds"].keys() == {"train", "protect", "travel", "aggregate", "recover", "evaluate"}
        for record in values["rounds"]
    )
    assert values["privacy"] is None
    claimed = run(digits(mode="dp", dp={"noise": 1.0})).to_dict()["privacy"]
    assert claimed.keys() == {
        *("epsilon", "delta", "unit", "neighbours", "accountant", "against", "notes"),
        *("nominal_epsilon", "nominal_delta", "true_delta", "gaussian_mu", "right_guesses"),
    }
    assert values == result.to_dict()
    assert Result.read(out / RESULT) == result
    assert (result.mode, result.engine, result.dataset, result.model) == ("plain", "in-process", "digits", "logistic")
    assert (result.parameters, result.clients, result.per_round) == (650, 5, 5)
    assert (result.seed, result.simulation, result.version) == (1, True, tacit.__version__)
    assert [record.round for record in result.rounds] == [1, 2]
    assert from_mapping(yaml.safe_load((out / CONFIG).read_text())).federate.clients == 5


def test_the_sums_add_up_and_the_model_is_the_one_that_was_tested(tmp_path: Path) -> None:
    result = run(digits(out=tmp_path / "run"))
    task, reply = 20 + 4 + 4 + 4 * 650, 20 + 4 * 652
    assert [(r.bytes_down, r.bytes_up) for r in result.rounds] == [(5 * task, 5 * reply)] * 2
    assert (result.bytes_down, result.bytes_up) == (10 * task, 10 * reply)
    assert (result.test_accuracy, result.test_loss) == (result.rounds[-1].test_accuracy, result.rounds[-1].test_loss)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.5
    from tacit.tasks import catalogue

    test = catalogue.load("digits").test
    model = load_file(tmp_path / "run" / MODEL)
    outputs = test.features.reshape(len(test), -1) @ model["1.weight"].T + model["1.bias"]
    assert float((outputs.argmax(1) == test.labels).mean()) == pytest.approx(result.test_accuracy)


def test_the_journal_is_written_ahead(tmp_path: Path) -> None:
    run(digits(out=tmp_path / "run"))
    assert _types(tmp_path / "run") == ["start", "attempt", "round", "attempt", "round", "end"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path: Path) -> None:
    runs: dict[str, dict[str, Any]] = {"a": {}, "b": {}, "two": {"train": {"workers": 2}}, "c": {"seed": 2}}
    for name, changes in runs.items():
        run(digits(out=tmp_path / name, model={"name": "mlp"}, **changes))
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") == weights(tmp_path / "two")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_without_a_seed_it_is_no_simulation(tmp_path: Path) -> None:
    first, second = (run(digits(seed=None, out=tmp_path / name)) for name in "ab")
    assert (first.simulation, first.seed) == (False, None)
    assert weights(tmp_path / "a") != weights(tmp_path / "b")
    assert second.rounds[-1].train_loss != first.rounds[-1].train_loss


def test_without_a_folder_nothing_is_written(tmp_path: Path) -> None:
    result = run(digits())
    assert result.folder is None
    assert [path for path in tmp_path.iterdir() if path.name != "lonely-cache"] == []


@pytest.mark.parametrize("name", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
def test_every_server_optimiser_learns(name: str) -> None:
    lr = 0.1 if name in ("fedadam", "fedyogi") else 1.0
    result = run(digits(server={"name": name, "lr": lr, "momentum": 0.5}, federate={"rounds": 4}))
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.6
    losses = [record.train_loss for record in result.rounds]
    assert losses[-1] is not None
    assert losses[0] is not None
    assert losses[-1] < losses[0]


def test_the_server_tests_when_told_and_after_the_last_round() -> None:
    result = run(digits(evaluate={"every": 2, "train": False}, federate={"rounds": 5}))
    assert [record.test_accuracy is not None for record in result.rounds] == [False, True, False, True, True]
    assert result.train_accuracy is None
    assert run(digits()).train_accuracy is not None


def test_every_tested_round_is_scored_on_the_training_data_where_that_is_asked_for() -> None:
    result = run(digits(evaluate={"every": 2, "train": True}, federate={"rounds": 5}))
    assert [record.train_accuracy is not None for record in result.rounds] == [False, True, False, True, True]
    assert [record.train_data_loss is not None for record in result.rounds] == [False, True, False, True, True]
    assert result.rounds[-1].train_accuracy == result.train_accuracy
    unasked = run(digits(federate={"rounds": 2}))
    assert [record.train_accuracy for record in unasked.rounds] == [None, None]  # at the end only
    assert unasked.train_accuracy is not None


def test_scores_on_the_training_data_do_not_change_what_is_learned() -> None:
    asked, unasked = (run(digits(evaluate={"train": train}, federate={"rounds": 2})) for train in (True, False))
    assert [record.test_loss for record in asked.rounds] == [record.test_loss for record in unasked.rounds]


def test_poisson_cohorts_vary() -> None:
    result = run(digits(federate={"sampling": "poisson", "per_round": 10, "clients": 20, "rounds": 6}))
    asked = [record.clients_asked for record in result.rounds]
    assert len(set(asked)) > 1
    assert result.per_round == 10
    assert all(r.clients_replied == r.clients_asked for r in result.rounds)


def test_fixed_cohorts_have_their_size() -> None:
    result = run(digits(federate={"per_round": 3, "clients": 20}))
    assert [record.clients_asked for record in result.rounds] == [3, 3]


def test_drop_outs_are_counted_and_too_few_are_tried_again(tmp_path: Path) -> None:
    watching = Watching()
    federate = {"drop": 0.5, "clients": 10, "rounds": 6, "minimum_clients": 5, "retries": 20}
    result = run(digits(out=tmp_path / "run", federate=federate), observer=watching)
    assert all(5 <= record.senders <= 10 for record in result.rounds)
    assert any(record.senders < 10 for record in result.rounds)
    attempts = [record.attempts for record in result.rounds]
    assert max(attempts) > 1
    assert _types(tmp_path / "run").count("attempt") == sum(attempts)
    assert _types(tmp_path / "run").count("failed") == sum(attempts) - 6
    assert len(watching.notes) == sum(attempts) - 6
    assert "Trying again with a new cohort" in watching.notes[0]
    for record in result.rounds:  # a failed try's bytes count: they were sent
        assert record.bytes_down == record.attempts * 10 * (20 + 4 + 4 + 4 * 650)


def test_too_few_clients_to_the_end_fail_closed_and_keep_the_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    config = digits(out=out, federate={"drop": 0.9, "minimum_clients": 5, "retries": 1})
    with pytest.raises(DropoutError, match=r"5 needed.*Tried 2 times; the model of round 0 is kept"):
        run(config)
    assert _types(out) == ["start", "attempt", "failed", "attempt", "failed", "stopped"]
    assert finite(out)
    assert not (out / RESULT).exists()


def test_a_loss_that_is_no_number_names_round_and_client_and_keeps_the_last_good_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(DropoutError, match=r"0 of 5 .*Client 0 failed in round 1: its training diverged\. Lower opt"):
        run(digits(out=out, model={"name": "mlp"}, optimizer={"lr": 1e6}, federate={"retries": 0}))
    assert _types(out) == ["start", "attempt", "failed", "stopped"]
    assert finite(out)
    assert Checkpoint.read(out / CHECKPOINT).round_number == 0


def test_an_update_that_overflows_names_the_client_too(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(DropoutError, match=r"Client 0 failed in round 1: its update is not finite"):
        # one step: the loss is a number
        run(unchecked(digits(out=out, train={"batch_size": 1000}), optimizer={"lr": 1e38}))
    assert finite(out)


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_a_global_model_that_overflows_is_stopped(tmp_path: Path, name: str) -> None:
    out = tmp_path / "run"
    changes = {"lr": 1e-300, "tau": 1e-320} if name == "fedadam" else {"lr": 1e38}
    optimizer = {"lr": 1e25} if name == "fedadam" else {"lr": 10.0}
    config = digits(out=out, server={"name": name}, train={"batch_size": 1000})
    with pytest.raises(RunError, match=r"round 1; the model of round 0 is kept. Lower server.lr or optimizer.lr"):
        run(unchecked(config, server=changes, optimizer=optimizer))
    assert finite(out)
    assert Checkpoint.read(out / CHECKPOINT).round_number == 0


def test_a_model_that_diverges_later_keeps_the_round_before(tmp_path: Path) -> None:
    out = tmp_path / "run"
    watching = Watching()
    with pytest.raises((DropoutError, RunError), match=r"round \d"):
        run(digits(out=out, model={"name": "mlp"}, server={"lr": 1e6}, federate={"rounds": 20}), observer=watching)
    kept = Checkpoint.read(out / CHECKPOINT)
    assert kept.round_number == len(watching.records) > 0
    model = load_file(out / MODEL)
    names = [f"{layer}.{kind}" for layer in (1, 3, 5) for kind in ("weight", "bias")]
    assert np.concatenate([model[name].ravel() for name in names]).tobytes() == kept.model.tobytes()
    assert finite(out)


def test_a_folder_of_another_run_is_refused_unless_forced(tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(digits(out=out))
    before = weights(out)
    with pytest.raises(RunError, match=r"holds another run.*--force"):
        run(digits(out=out, seed=2))
    assert weights(out) == before
    run(digits(out=out, seed=2), force=True)
    assert weights(out) != before
    assert _types(out).count("start") == 1


def _full_disk(after: int) -> Callable[..., int]:
    """Return an os.write that fails from the given call on."""
    calls = 0
    write = os.write

    def fail(descriptor: int, data: Any) -> int:
        nonlocal calls
        calls += 1
        if calls > after:
            write(descriptor, data[:7])
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data)

    return fail


def test_a_disk_that_fills_up_leaves_the_earlier_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(
            os, "write", _full_disk(after=6)
        )  # lock, config, start, the first model, try 1, round 1; then it is full
        with pytest.raises(StorageError, match=r"No space left on device.*tacit resume"):
            run(digits(out=out, federate={"rounds": 4}))
    assert Checkpoint.read(out / CHECKPOINT).round_number == 1
    assert not [path for path in out.iterdir() if path.suffix == ".part"]
    run(digits(out=tmp_path / "whole", federate={"rounds": 4}))
    tacit.resume(out)
    assert weights(out) == weights(tmp_path / "whole")


def test_a_disk_that_is_full_at_once_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(os, "write", _full_disk(after=0))
    with pytest.raises(StorageError, match="No space left"):
        run(digits(out=out))
    assert list(out.iterdir()) == []


def test_a_journal_that_can_not_be_written_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    append = journal.Journal.append

    def fail(self: journal.Journal, record: Any) -> None:
        if isinstance(record, journal.Attempt) and record.round == 2:
            raise StorageError("the disk is full")
        append(self, record)

    monkeypatch.setattr(journal.Journal, "append", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        run(digits(out=out))
    assert Checkpoint.read(out / CHECKPOINT).round_number == 1
    assert finite(out)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"federate": {"per_round": 6}}, "federate.per_round=6 is more than the 5 clients"),
        ({"data": {"split": "natural"}}, "natural"),
        ({"data": {"split": "sideways"}}, "sideways"),
        ({"model": {"name": "cnn"}}, "needs images"),
        ({"model": {"name": "torch.nn:Linear"}}, "Can't build model"),
        ({"mode": "signs"}, "Unknown mode 'signs'"),
        ({"train": {"form": "vmap", "workers": 1}, "model": {"name": "missing.module:Net"}}, "Can't load model"),
    ],
)
def test_mistakes_show_before_a_folder_is_made(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(digits(out=tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_a_mistake_in_the_plan_shows_before_data_are_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit.tasks.catalogue.load", lambda *_, **__: pytest.fail("the data were loaded"))
    for changes in (
        {"mode": "dp", "dp": {"epsilon": 1.0, "noise": 1.0}},
        {"federate": {"per_round": 60}},
        {"dp": {"clip": 1.0}},
    ):
        with pytest.raises(ConfigError):
            run(RunConfig(**changes))


def test_more_clients_than_examples_is_refused() -> None:
    with pytest.raises((DataError, ConfigError), match="5000"):
        run(digits(federate={"clients": 5_000}))


def test_a_model_that_does_not_fit_the_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "narrow_net.py").write_text("from torch import nn\ndef net(): return nn.Linear(64, 3)\n")
    (tmp_path / "wrong_net.py").write_text("from torch import nn\ndef net(): return nn.Linear(7, 10)\n")
    with pytest.raises(ConfigError, match=r"can't take examples of shape \(1, 8, 8\)|\(64,\)"):
        run(digits(model={"name": "wrong_net:net"}))
    with pytest.raises(ConfigError, match=r"out of bounds|3 outputs|shape"):
        run(digits(model={"name": "narrow_net:net"}))


def test_where_mnist_can_not_be_had_the_default_run_says_so_and_uses_digits() -> None:
    watching = Watching()
    config = RunConfig(seed=1, data={"download": False}, federate={"rounds": 1}, train={"workers": 1})
    result = run(config, observer=watching)
    assert result.dataset == "digits"
    assert "MNIST can't be had" in watching.notes[0]
    assert result.notes == tuple(watching.notes)
    with pytest.raises(DataError):
        run(RunConfig(data={"name": "mnist", "download": False}))


@pytest.mark.parametrize(
    ("mode", "said"),
    [("masks", "or lower masks.clip"), ("paillier", "or lower paillier.clip"), ("plain", "Raise optimizer.lr, unless")],
)
def test_a_run_in_which_nothing_moves_says_so_once(mode: str, said: str) -> None:
    watching = Watching()
    sections = {"paillier": {"paillier": {"bits": 1024, "insecure_key_size": True}}}
    lr = 1e-12 if mode == "plain" else 1e-9
    result = run(digits(mode=mode, optimizer={"lr": lr}, **sections.get(mode, {})), observer=watching)
    (told,) = [note for note in result.notes if "moved nothing" in note]
    assert told in watching.notes
    assert said in told
    assert ("are rounded to zero" in told) is (mode != "plain")


def test_noise_moves_a_model_and_nothing_is_said() -> None:
    result = run(digits(mode="masks", masks={"dp": True}, dp={"noise": 1.0}, optimizer={"lr": 1e-9}))
    assert not any("moved nothing" in note for note in result.notes)


def test_an_observer_is_told_everything(tmp_path: Path) -> None:
    watching = Watching()
    result = run(digits(), observer=watching)
    assert watching.result == result
    assert tuple(watching.records) == result.rounds
    assert watching.progressed == [(n, 5) for n in range(1, 6)] * 2
    assert watching.rounds == 2
    assert "5 clients (iid)" in watching.title


def test_torch_is_left_as_it_was() -> None:
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    torch.set_num_threads(2)
    run(digits(train={"workers": 2}))
    found = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert found == 2
    assert torch.equal(torch.get_rng_state(), state)


def test_uniform_weights_differ_from_weights_by_examples(tmp_path: Path) -> None:
    for weighting in ("examples", "uniform"):
        federate = {"weighting": weighting}
        run(digits(out=tmp_path / weighting, data={"split": "power:1.5"}, federate=federate))
    assert weights(tmp_path / "examples") != weights(tmp_path / "uniform")


def test_fields_of_a_later_version_are_left_out(tmp_path: Path) -> None:
    result = run(digits(out=tmp_path / "run"))
    values = json.loads((tmp_path / "run" / RESULT).read_text()) | {"invented": 1}
    values["rounds"][0]["invented"] = 2
    (tmp_path / "later.json").write_text(json.dumps(values))
    assert Result.read(tmp_path / "later.json") == result
