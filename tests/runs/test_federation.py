from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import tacit
from tacit.errors import ConfigError, DataError, RunError
from tacit.runs.folder import MODEL, RESULT
from tacit.training.hooks import Context


def _model() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def _arrays(count: int, seed: int) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(count, 4))
    return features, (features[:, 0] > 0).astype(int)


class Own(Dataset[tuple[Any, int]]):
    """A data set as users write them."""

    def __init__(self, count: int, seed: int) -> None:
        self.features, self.labels = _arrays(count, seed)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.features[index].astype(np.float32), int(self.labels[index])


SIZES = (12, 7, 20)
ARRAYS = [_arrays(count, seed) for seed, count in enumerate(SIZES)]


def _federation(**changes: Any) -> tacit.Federation:
    values: dict[str, Any] = {
        "model": _model(),
        "clients": ARRAYS,
        "seed": 1,
        "optimizer": {"lr": 0.5},
        "train": {"workers": 1, "batch_size": 4},
    }
    return tacit.Federation(**(values | changes))


def _weights(model: nn.Module) -> list[bytes]:
    return [p.detach().numpy().tobytes() for p in model.parameters()]


def test_the_model_is_trained_in_place() -> None:
    model = _model()
    before = _weights(model)
    result = _federation(model=model, test=_arrays(200, 9)).fit(rounds=8)
    assert _weights(model) != before
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.85
    features, labels = _arrays(200, 9)
    with torch.no_grad():
        outputs = model(torch.from_numpy(features).float())
    assert float((outputs.argmax(1).numpy() == labels).mean()) == pytest.approx(result.test_accuracy)
    assert (result.dataset, result.split, result.model, result.clients) == ("given", "given", "Sequential", 3)


def test_every_way_to_give_data_is_the_same() -> None:
    ways = {
        "arrays": ARRAYS,
        "lists": [list(pair) for pair in ARRAYS],
        "tensors": [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in ARRAYS],
        "TensorDataset": [TensorDataset(torch.from_numpy(x), torch.from_numpy(y)) for x, y in ARRAYS],
        "own": [Own(count, seed) for seed, count in enumerate(SIZES)],
    }
    trained = set()
    for clients in ways.values():
        model = _model()
        _federation(model=model, clients=clients).fit(rounds=2)
        trained.add(b"".join(_weights(model)))
    assert len(trained) == 1


def test_without_a_test_set_nothing_is_tested() -> None:
    result = _federation().fit(rounds=2)
    assert (result.test_accuracy, result.test_loss) == (None, None)
    assert result.train_accuracy is not None


def test_regression() -> None:
    x = np.random.default_rng(3).normal(size=(60, 4))
    y = x @ np.array([1.0, -2.0, 0.5, 0.0])
    model = nn.Linear(4, 1)
    clients = [(x[:30], y[:30]), (x[30:], y[30:])]
    result = _federation(model=model, clients=clients, test=(x, y), loss="squared-error", optimizer={"lr": 0.1}).fit(
        rounds=20
    )
    assert result.test_accuracy is None
    assert result.test_loss is not None
    assert result.test_loss < 0.01


def test_a_loss_of_ones_own() -> None:
    def smooth(outputs: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(outputs, labels, reduction="none", label_smoothing=0.2)

    one, other = _model(), _model()
    _federation(model=one, loss=smooth).fit(rounds=1)
    _federation(model=other).fit(rounds=1)
    assert _weights(one) != _weights(other)


def test_fitting_again_goes_on_from_the_weights_there() -> None:
    model = _model()
    federation = _federation(model=model, test=_arrays(200, 9))
    first, second = federation.fit(rounds=2), federation.fit(rounds=2)
    assert second.rounds[0].train_loss is not None
    assert first.rounds[0].train_loss is not None
    assert second.rounds[0].train_loss < first.rounds[0].train_loss


def test_settings_arrive() -> None:
    result = _federation(federate={"per_round": 2}, server={"name": "fedavgm", "lr": 0.5}).fit(rounds=3)
    assert [record.clients_asked for record in result.rounds] == [2, 2, 2]
    with pytest.raises(ConfigError, match=r"Did you mean 'optimizer.lr'"):
        _federation(optimiser={"lr": 0.1}).fit(rounds=1)
    with pytest.raises(ConfigError, match=r"federate.rounds=0"):
        _federation().fit(rounds=0)
    with pytest.raises(ConfigError, match="per_round=4 is more than the 3 clients"):
        _federation(federate={"per_round": 4}).fit(rounds=1)


def test_hooks_count_batches_and_force_the_loop() -> None:
    federation, batches = _federation(), Counter[int | None]()

    def count(context: Context) -> None:
        batches[context.client] += 1

    federation.register("on_batch_end", count)
    result = federation.fit(rounds=2)
    assert batches == {0: 6, 1: 4, 2: 10}
    assert (result.form, result.form_reason) == ("loop", "hooks see one client at a time")


def test_a_hook_that_does_nothing_gives_the_same_weights() -> None:
    plain, hooked = _model(), _model()
    _federation(model=plain, train={"form": "loop", "batch_size": 4}).fit(rounds=2)
    federation = _federation(model=hooked)
    federation.register("on_epoch_start", lambda context: None, position=0)
    federation.fit(rounds=2)
    assert _weights(plain) == _weights(hooked)


def test_evaluation_hooks() -> None:
    federation, seen = _federation(test=_arrays(10, 9)), list[bool]()
    federation.register("on_fit_end", lambda context: seen.append(context.training), during="evaluation")
    result = federation.fit(rounds=3)
    assert seen == [False] * 4  # three rounds, and the training data at the end
    assert result.form != "loop"
    with pytest.raises(ConfigError, match="during='training' or 'evaluation', got 'testing'"):
        federation.register("on_fit_end", lambda context: None, during="testing")
    with pytest.raises(ConfigError, match="got 'on_fit'"):
        federation.register("on_fit", lambda context: None)


def test_an_injector_sees_every_broadcast() -> None:
    model, seen = _model(), list[tuple[int, int]]()
    federation = _federation(model=model, optimizer={"lr": 1e-12})

    def zero(vector: Any, round_number: int) -> Any:
        seen.append((len(vector), round_number))
        return np.zeros_like(vector)

    federation.register_injector(zero)
    federation.fit(rounds=2)
    assert seen == [(58, 1), (58, 2)]
    assert max(float(p.detach().abs().max()) for p in model.parameters()) < 1e-9


class _Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter([(np.zeros(4), 0)])


class _Ragged(Own):
    def __getitem__(self, index: int) -> tuple[Any, int]:
        features, label = super().__getitem__(index)
        return features[: 1 + index % 3], label


class _Three(Own):
    def __getitem__(self, index: int) -> Any:
        return (*super().__getitem__(index), 1.0)


X, Y = _arrays(6, 5)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ((np.where(X > 1, np.nan, X), Y), "features of client 1 hold NaN or infinity"),
        ((X, Y[:-1]), "as many labels as examples for client 1, got 5 and 6"),
        ((X[:0], Y[:0]), "Client 1 holds no example"),
        (TensorDataset(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64)), "Client 1 holds no example"),
        (Own(0, 1), "Client 1 holds no example"),
        (_Stream(), "map-style Dataset or a pair of arrays for client 1, got _Stream"),
        (_Ragged(6, 1), "examples of client 1 can't be stacked"),
        (_Three(6, 1), "pairs of features and label for client 1, got 3 parts"),
        (TensorDataset(torch.zeros(6, 4)), "pairs of features and label for client 1, got 1 parts"),
        ((X, Y, Y), "got 3 parts"),
        (7, "map-style Dataset or a pair of arrays for client 1, got int"),
        ((X[:, :3], Y), r"of one shape from all clients, got features \(4,\) from client 0 and features \(3,\) from"),
        ((X, np.stack([Y, Y], 1)), r"of one shape from all clients, .* with labels \(2,\) from client 1"),
    ],
)
def test_bad_data_name_the_client(bad: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        _federation(clients=[ARRAYS[0], bad])


def test_bad_test_data_are_named_too() -> None:
    with pytest.raises(DataError, match="The test set holds no example"):
        _federation(test=(X[:0], Y[:0]))
    with pytest.raises(DataError, match=r"test examples of the clients' shape \(4,\), got \(3,\)"):
        _federation(test=(X[:, :3], Y))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"clients": []}, "at least one client"),
        ({"loss": "hinge"}, "Unknown loss 'hinge'. Known: cross-entropy, squared-error"),
    ],
)
def test_bad_parts_are_refused_at_once(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _federation(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": nn.Linear(3, 2)}, r"can't take examples of shape \(4,\)"),
        ({"clients": [(X.astype(np.uint8), Y)]}, "torch.uint8"),
        ({"clients": [(X, Y + 1)]}, "out of bounds|2 outputs"),
        ({"clients": [(X, np.array([0, 1, 0, 1, 0, 7]))]}, "2 outputs, but labels run from 0 to 7"),
        ({"loss": F.cross_entropy}, "one number per example"),
        ({"model": nn.ReLU()}, "parameters to train"),
        ({"model": _model().double()}, "float|dtype"),
    ],
)
def test_what_does_not_fit_together_is_said_before_the_first_round(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        _federation(**changes).fit(rounds=1)


def test_trying_the_model_leaves_it_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2), nn.Dropout())
    model[2].eval()
    with pytest.raises(ConfigError):
        _federation(model=model, loss=F.cross_entropy).fit(rounds=1)
    assert [part.training for part in model.modules()] == [True, True, True, False]
    assert int(model[1].num_batches_tracked) == 0  # type: ignore[arg-type]


def test_batch_norm_trains_in_the_loop() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2))
    result = _federation(model=model, train={"batch_size": 7}, test=_arrays(100, 9)).fit(rounds=4)
    assert result.form == "loop"
    assert "BatchNorm1d" in result.form_reason
    assert float(model[1].running_var.std()) > 0  # type: ignore[operator]


def test_a_folder_keeps_the_run_and_can_not_be_resumed_without_the_data(tmp_path: Path) -> None:
    model = _model()
    result = _federation(model=model).fit(rounds=2, out=tmp_path / "run")
    assert result.folder == str(tmp_path / "run")
    assert (tmp_path / "run" / MODEL).exists()
    with pytest.raises(RunError, match="holds another run"):
        _federation().fit(rounds=2, out=tmp_path / "run")
    _federation().fit(rounds=2, out=str(tmp_path / "run"), force=True)
    _federation(out=tmp_path / "other").fit(rounds=1)
    assert (tmp_path / "other" / RESULT).exists()
    (tmp_path / "run" / RESULT).unlink()
    with pytest.raises(RunError, match=r"Federation.fit on data that were given in memory"):
        tacit.resume(tmp_path / "run")


def test_the_names_of_the_package() -> None:
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tacit.nothing  # noqa: B018


@pytest.mark.parametrize("server", ["fedavg", "fedavgm", "fedadam", "fedyogi"])
@pytest.mark.parametrize("sizes", [(250,) * 8, (60, 1, 17, 33, 3)])
def test_batch_norm_learns_in_the_clear_whatever_clients_hold(server: str, sizes: tuple[int, ...]) -> None:
    generator = np.random.default_rng(0)

    def part(count: int) -> tuple[Any, Any]:
        features = generator.normal(3, 5, (count, 4)).astype(np.float32)
        return features, (features[:, 0] > features[:, 1]).astype(int)

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    federation = tacit.Federation(
        model=model, clients=[part(count) for count in sizes], test=part(300), seed=1, server={"name": server}
    )
    result = federation.fit(rounds=6, quiet=True)
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.7
    assert float(model[1].running_var.min()) > 0  # type: ignore[operator]


def test_fix_puts_group_norm_in_the_place_of_batch_norm_and_trains_under_noise() -> None:
    model = tacit.fix(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)))
    assert not [part for part in model.modules() if isinstance(part, nn.BatchNorm1d)]
    result = _federation(model=model, mode="dp", dp={"noise": 1.0}).fit(rounds=1, quiet=True)
    assert result.claimed.epsilon is not None
    with pytest.raises(ConfigError, match="Module to fix, got Linear"):
        tacit.fix(nn.Linear)  # type: ignore[arg-type]


def test_a_line_per_round_is_printed_unless_it_is_to_be_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    _federation(test=_arrays(20, 9)).fit(rounds=2, quiet=True)
    assert capsys.readouterr() == ("", "")
    _federation(test=_arrays(20, 9), mode="dp", dp={"noise": 1.0}).fit(rounds=2)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert "Sequential, 3 clients: 2 rounds" in lines
    assert [line for line in lines if line.startswith("round 2/2  test loss ") and "  epsilon " in line]


def test_a_result_prints_as_a_short_table_and_renders_in_a_notebook() -> None:
    result = _federation(test=_arrays(20, 9), mode="dp", dp={"noise": 1.0}).fit(rounds=12, quiet=True)
    lines = str(result).splitlines()
    assert lines[0] == "run            mode dp, Sequential on given data, 3 clients"
    assert [line for line in lines if line.startswith("epsilon") and "at delta 1e-05 for one client" in line]
    assert len(lines) < 20
    assert max(map(len, lines)) < 100
    assert len(repr(result)) < 200
    page = result._repr_html_()
    assert page.count("<table>") == 2
    assert "<td>12</td>" in page
    plain = _federation().fit(rounds=1, quiet=True)
    assert "no differential privacy is claimed" in str(plain)
    assert plain.to_dict()["mode"] == "plain"


def test_the_package_shows_its_names() -> None:
    assert {"Federation", "Result", "RunConfig", "dpsgd", "fix", "resume", "run"} <= set(dir(tacit))
    assert not [name for name in dir(tacit) if not hasattr(tacit, name)]


@pytest.mark.parametrize("name", ["quiet", "rounds", "callbacks"])
def test_what_belongs_to_a_fit_is_told_where_to_go(name: str) -> None:
    clients = [(np.eye(2, dtype=np.float32), np.array([0, 1]))] * 2
    with pytest.raises(ConfigError, match=rf"federation\.fit\({name}="):
        tacit.Federation(model=nn.Linear(2, 2), clients=clients, **dict[str, Any]({name: 1}))
