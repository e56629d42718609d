"""What Python people bring and expect to find: tables, text, models of other libraries, metrics, predictions, files."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import tacit
from tacit.errors import ConfigError, DataError, RunError
from tacit.runs import history
from tacit.runs.result import RoundRecord


class Column:
    """A column of a table, as pandas has it."""

    def __init__(self, values: Any) -> None:
        self._values = np.array(values, dtype=object) if isinstance(values[0], str) else np.array(values)

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        return self._values[place]

    def to_numpy(self) -> Any:
        return self._values


class Names(list[str]):
    """The names of columns, as pandas has them: neither true nor false."""

    def __bool__(self) -> bool:
        raise ValueError("The truth value of a Index is ambiguous.")


class Frame:
    """A table, as pandas has it."""

    def __init__(self, **columns: Any) -> None:
        self._columns = {name: Column(values) for name, values in columns.items()}
        self.columns = Names(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, name: str) -> Column:
        return self._columns[name]

    def to_numpy(self) -> Any:
        parts = [column.to_numpy() for column in self._columns.values()]
        mixed = len({part.dtype.kind for part in parts}) > 1
        return np.stack([part.astype(object) for part in parts] if mixed else parts, axis=1)


class Rows:
    """A data set, as Hugging Face has it: columns by name, rows by number."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.column_names = list(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, key: Any) -> Any:
        return self._columns[key] if isinstance(key, str) else {name: v[key] for name, v in self._columns.items()}


class Image:
    """An image, as Pillow has it."""

    mode = "L"

    def __init__(self, pixels: Any) -> None:
        self._pixels = pixels

    def convert(self, _mode: str) -> Image:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._pixels.astype(dtype or np.uint8)


class Wrapped(nn.Module):
    """A model whose outputs are something around its logits."""

    def __init__(self, wrap: Any) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            self.layer = nn.Linear(4, 2)
        self.wrap = wrap

    def forward(self, features: Tensor) -> Any:
        return self.wrap(self.layer(features))


GENERATOR = np.random.default_rng(5)


def _rows(count: int) -> tuple[Any, Any]:
    features = GENERATOR.normal(size=(count, 4)).astype(np.float32)
    return features, np.where(features[:, 0] > features[:, 1], "ill", "well")


def _numbers(count: int) -> tuple[Any, Any]:
    features, labels = _rows(count)
    return features, (labels == "ill").astype(int)


def _patients(count: int) -> dict[str, list[Any]]:
    ages = GENERATOR.integers(20, 90, count)
    sexes = GENERATOR.choice(["f", "m"], count)
    return {
        "hospital": GENERATOR.choice(["north", "south"], count).tolist(),
        "age": [float(age) if GENERATOR.random() > 0.1 else float("nan") for age in ages],
        "sex": sexes.tolist(),
        "outcome": ["ill" if age + 20 * (sex == "m") > 65 else "healthy" for age, sex in zip(ages, sexes, strict=True)],
    }


PATIENTS, TESTED = _patients(400), _patients(200)
PUBLIC = {"age": [18, 90], "sex": ["f", "m"], "outcome": ["healthy", "ill"]}


def _fit(rounds: int = 4, **given: Any) -> tuple[tacit.Federation, tacit.Result]:
    values: dict[str, Any] = {"seed": 1, "optimizer": {"lr": 0.3}}
    federation = tacit.Federation(**values | given)
    return federation, federation.fit(rounds=rounds, quiet=True)


def test_labels_may_be_text_and_clients_may_have_names(tmp_path: Path) -> None:
    clients = {"Cleveland": _rows(90), "Budapest": _rows(50)}
    federation, result = _fit(model=nn.Linear(4, 2), clients=clients, test=_rows(100))
    assert federation.classes == ("ill", "well")
    assert result.client_names == federation.client_names == ("Cleveland", "Budapest")
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.85
    features, labels = _rows(100)
    assert float((federation.predict(features) == labels).mean()) > 0.85
    assert "Cleveland, Budapest" in str(result)
    federation.fit(rounds=1, quiet=True, out=tmp_path / "run")
    assert history.read(tmp_path / "run").start.client_names == ("Cleveland", "Budapest")


def test_names_that_would_tell_who_is_there_stay_out_of_private_results(tmp_path: Path) -> None:
    clients = {"Cleveland": _numbers(20), "Budapest": _numbers(20)}
    federation = tacit.Federation(model=nn.Linear(4, 2), clients=clients, mode="dp", dp={"noise": 1.0}, seed=1)
    result = federation.fit(rounds=1, quiet=True, out=tmp_path / "run")
    assert result.claimed.neighbours == "add-remove"
    assert result.client_names == ()
    for path in (tmp_path / "run").iterdir():
        assert path.is_dir() or b"Cleveland" not in path.read_bytes(), path


def test_classes_are_not_read_off_private_labels() -> None:
    given: dict[str, Any] = {"model": nn.Linear(4, 2), "clients": [_rows(30)] * 3, "mode": "dp", "dp": {"noise": 1.0}}
    with pytest.raises(ConfigError, match=r"names of the classes would be read off.*classes=\['ill', 'well'\]"):
        tacit.Federation(**given).fit(rounds=1, quiet=True)
    assert tacit.Federation(**given, classes=["ill", "well"]).fit(rounds=1, quiet=True).rounds
    assert tacit.Federation(**given, test=_rows(30)).fit(rounds=1, quiet=True).rounds
    with pytest.raises(DataError, match="label 'well' of client 0 is not among the classes 'ill', 'dead'"):
        tacit.Federation(**given, classes=["ill", "dead"])
    with pytest.raises(ConfigError, match="How many classes there are would be read off"):
        tacit.Federation(**given | {"model": "logistic", "clients": [_numbers(30)] * 3})


def test_a_frame_of_numbers_and_a_column_are_what_their_arrays_are() -> None:
    features, labels = _numbers(60)
    frame = Frame(a=features[:, 0], b=features[:, 1], c=features[:, 2], d=features[:, 3] > 0)
    plain = np.column_stack([features[:, :3], features[:, 3] > 0]).astype(np.float32)
    models = []
    for given in (frame, plain):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = nn.Linear(4, 2)
        federation, _ = _fit(rounds=1, model=model, clients=[(given, Column(labels.tolist()))] * 2)
        models.append(model.weight.detach().numpy().tobytes())
        assert len(federation.predict(given)) == 60
    assert models[0] == models[1]


def test_one_table_for_all_clients_is_encoded_and_shared_out() -> None:
    federation, result = _fit(
        model="logistic", clients=Frame(**PATIENTS), test=Frame(**TESTED), label="outcome", client="hospital", rounds=8
    )
    assert result.client_names == ("north", "south")
    assert result.test_accuracy is not None
    assert result.test_accuracy > 0.8
    assert any("constants from the training rows" in note for note in result.notes)
    unlabelled = {name: values for name, values in TESTED.items() if name != "outcome"}
    assert set(federation.predict(Frame(**unlabelled))) == {"healthy", "ill"}
    assert federation.evaluate(Frame(**TESTED))["accuracy"] == pytest.approx(result.test_accuracy)
    assert list(federation.evaluate_clients()) == ["north", "south"]


def test_arrays_for_all_clients_are_shared_out_by_an_array() -> None:
    features, labels = _numbers(60)
    owners = np.random.default_rng(1).permutation(np.arange(60) % 4)
    models = []
    for given in (
        {"clients": [(features[owners == one], labels[owners == one]) for one in range(4)]},
        {"clients": (features, labels), "client": owners},
        {"clients": (features, labels), "client": [f"client {owner}" for owner in owners]},
    ):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            model = nn.Linear(4, 2)
        federation, result = _fit(rounds=2, model=model, **given)
        models.append(model.weight.detach().numpy().tobytes())
        assert result.clients == 4
    assert models[0] == models[1] == models[2]
    assert result.client_names == ("client 0", "client 1", "client 2", "client 3")
    each = [federation.evaluate((features[owners == one], labels[owners == one])) for one in range(4)]
    assert list(federation.evaluate_clients().values()) == each


@pytest.mark.parametrize(
    ("owners", "why"),
    [
        (np.arange(59), "whose each of the 60 rows is, got 59"),
        (np.linspace(0, 1, 60), "one whole number or text per row, got float64"),
        (np.zeros((60, 2), int), "shape \\(60, 2\\)"),
        ([None] * 60, "got object"),
        (7, "shape \\(\\)"),
    ],
)
def test_owners_that_say_nothing_are_refused(owners: Any, why: str) -> None:
    with pytest.raises((ConfigError, DataError), match=why):
        tacit.Federation(model=nn.Linear(4, 2), clients=_numbers(60), client=owners)


def test_constants_of_a_private_table_are_public_or_refused() -> None:
    table = {name: values for name, values in PATIENTS.items() if name != "hospital"}
    given: dict[str, Any] = {
        "model": "logistic", "clients": [table] * 5, "label": "outcome", "mode": "dp", "dp": {"noise": 1.0}
    }  # fmt: skip
    with pytest.raises(ConfigError, match="'age', 'sex', 'outcome' would be read off the private rows of the clients"):
        tacit.Federation(**given)
    described = tacit.Federation(**given, columns=PUBLIC).fit(rounds=1, quiet=True)
    assert any("constants from a public description" in note for note in described.notes)
    tested = tacit.Federation(**given, test={name: TESTED[name] for name in table}).fit(rounds=1, quiet=True)
    assert any("constants from the public test rows" in note for note in tested.notes)


def test_a_data_set_of_hugging_face_has_a_label_and_one_column_of_arrays_or_images() -> None:
    features, labels = _numbers(40)
    rows = Rows(embedding=features.tolist(), label=labels.tolist())
    assert _fit(rounds=1, model=nn.Linear(4, 2), clients=[rows, rows])[1].clients == 2
    pixels = GENERATOR.integers(0, 255, (20, 8, 8)).astype(np.uint8)
    pictures = Rows(image=[Image(one) for one in pixels], label=[int(one.mean() > 127) for one in pixels])
    federation, _ = _fit(rounds=1, model=nn.Sequential(nn.Flatten(), nn.Linear(64, 2)), clients=[pictures])
    assert federation._train[0].shape == (20, 1, 8, 8)
    assert float(federation._train[0].max()) <= 1.0
    with pytest.raises(DataError, match=r"Take one of them: dataset\['train'\]"):
        tacit.Federation(model=nn.Linear(4, 2), clients=[{"train": rows, "test": rows}])


@pytest.mark.parametrize(
    "wrap",
    [lambda x: SimpleNamespace(logits=x, loss=None), lambda x: {"logits": x}],
    ids=["an attribute", "a mapping"],
)
@pytest.mark.parametrize("mode", [{}, {"mode": "dp-sgd", "dp": {"noise": 0.1}}], ids=["plain", "dp-sgd"])
def test_a_model_may_return_something_around_its_logits(wrap: Any, mode: dict[str, Any]) -> None:
    model, plain = Wrapped(wrap), Wrapped(lambda x: x)
    federation, result = _fit(model=model, clients=[FIXED] * 2, test=FIXED, **mode)
    _, expected = _fit(model=plain, clients=[FIXED] * 2, test=FIXED, **mode)
    assert result.test_loss == pytest.approx(expected.test_loss, rel=1e-4)
    assert torch.allclose(model.layer.weight, plain.layer.weight, atol=1e-4)
    assert not model._forward_hooks
    assert federation.predict(_numbers(5)[0]).shape == (5,)


def test_one_logit_has_an_accuracy_and_classes() -> None:
    for loss in ("binary-cross-entropy", nn.BCEWithLogitsLoss()):
        for model in (nn.Linear(4, 1), nn.Sequential(nn.Linear(4, 1), nn.Flatten(0))):
            federation, result = _fit(model=model, clients=[_numbers(100)] * 2, test=_numbers(60), loss=loss)
            assert result.test_accuracy is not None
            assert result.test_accuracy > 0.8
            assert set(federation.predict(_numbers(50)[0])) == {0, 1}
            likely = federation.predict_proba(_numbers(3)[0])
            assert likely.shape == (3, 2)
            assert likely.sum(1) == pytest.approx(1.0)


def test_losses_of_torch_give_one_loss_per_example() -> None:
    same = [
        _fit(rounds=2, model=_linear(), clients=[FIXED], loss=loss)[1].rounds[-1].train_loss
        for loss in ("cross-entropy", nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum"))
    ]
    assert same[0] == same[1] == same[2]
    weighted = _fit(
        rounds=2, model=_linear(), clients=[FIXED], loss=nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0]))
    )
    assert weighted[1].rounds[-1].train_loss != same[0]


FIXED = _numbers(50)


def _linear() -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return nn.Linear(4, 2)


def test_metrics_are_in_every_tested_round_and_in_the_result() -> None:
    def worst(outputs: Any, labels: Any) -> float:
        return float(np.abs(outputs).max() + 0 * labels.sum())

    federation, result = _fit(
        model=nn.Linear(4, 2),
        clients=[_rows(60)] * 2,
        test=_rows(60),
        metrics=["auc", "f1", "per-class", worst],
        evaluate={"every": 2},
    )
    assert [record.metrics is not None for record in result.rounds] == [False, True, False, True]
    assert list(result.metrics) == ["auc", "f1", "accuracy of ill", "accuracy of well", "worst"]
    assert result.metrics["auc"] > 0.9
    assert federation.evaluate()["auc"] == pytest.approx(result.metrics["auc"])
    assert tacit.Result(**vars(result)).metrics == result.metrics
    by_config = _fit(model=_linear(), clients=[FIXED], test=_numbers(30), evaluate={"metrics": "auc,recall"})[1]
    assert list(by_config.metrics) == ["auc", "recall"]


@pytest.mark.parametrize("mode", ["dp", "paillier", "dp-sgd"])
def test_single_clients_scores_are_not_told_where_clients_are_hidden(mode: str) -> None:
    federation = tacit.Federation(model=_linear(), clients=[FIXED] * 2, mode=mode)
    with pytest.raises(ConfigError, match=f"not to be told in mode '{mode}'"):
        federation.evaluate_clients()
    assert len(tacit.Federation(model=_linear(), clients=[FIXED] * 2).evaluate_clients()) == 2


def test_callbacks_hear_of_rounds_and_can_stop_a_fit() -> None:
    heard: list[int] = []

    def enough(record: RoundRecord) -> bool:
        heard.append(record.round)
        return record.round == 3

    federation = tacit.Federation(model=_linear(), clients=[FIXED], test=_numbers(30), evaluate={"every": 5}, seed=1)
    result = federation.fit(rounds=9, quiet=True, callbacks=[enough])
    assert heard == [1, 2, 3]
    assert len(result.rounds) == 3
    assert result.test_accuracy is not None
    assert "Stopped after round 3 of 9: the callback enough said so." in result.notes


def test_a_fit_stops_early_when_the_test_loss_no_longer_falls(tmp_path: Path) -> None:
    def federation(**more: Any) -> tacit.Federation:
        return tacit.Federation(
            model=_linear(), clients=[FIXED], test=_numbers(40), optimizer={"lr": 20.0}, seed=1, **more
        )

    result = federation().fit(rounds=60, quiet=True, early_stopping=2, out=tmp_path / "run")
    losses = [record.test_loss or 0.0 for record in result.rounds]
    assert len(losses) < 60
    assert min(losses[-2:]) >= min(losses[:-2])
    assert any("the test loss has not fallen for 2 tests" in note for note in result.notes)
    assert tacit.resume(tmp_path / "run", quiet=True) == result
    private = federation(mode="dp", dp={"noise": 0.5}).fit(rounds=60, quiet=True, early_stopping=2)
    assert any("count as public" in note for note in private.notes)


def test_a_model_is_saved_without_code_and_loaded_again(tmp_path: Path) -> None:
    federation, result = _fit(model="mlp", clients=[_rows(60)] * 2, test=_rows(60))
    path = federation.save(tmp_path / "model.safetensors")
    features, labels = _rows(40)
    loaded = tacit.load(path)
    assert loaded.predict(features).tolist() == federation.predict(features).tolist()
    assert loaded.evaluate((features, labels), metrics=["auc"]).keys() == {"loss", "accuracy", "auc"}
    own, _ = _fit(model=Wrapped(lambda x: {"logits": x}), clients=[_rows(60)])
    path = own.save(str(tmp_path / "own.safetensors"))
    with pytest.raises(ConfigError, match=r"Wrapped of your own, whose code is not saved.*model=\.\.\."):
        tacit.load(path)
    again = tacit.load(path, model=Wrapped(lambda x: {"logits": x}))
    assert again.predict(features).tolist() == own.predict(features).tolist()
    with pytest.raises(ConfigError, match="are not those of this Linear"):
        tacit.load(path, model=nn.Linear(4, 2))
    with pytest.raises(DataError, match=r"Expected examples of shape \(4,\).*got \(3,\)"):
        loaded.predict(features[:, :3])
    (tmp_path / "broken").write_bytes(b"no model")
    with pytest.raises(RunError, match="is damaged, or no model"):
        tacit.load(tmp_path / "broken")
    with pytest.raises(RunError, match="There is no model at"):
        tacit.load(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is a folder"):
        federation.save(tmp_path)
    assert result.rounds


def test_the_model_of_a_runs_folder_is_loaded(tmp_path: Path) -> None:
    config = tacit.RunConfig(data={"name": "digits"}, federate={"rounds": 2}, seed=1, out=tmp_path / "run")
    result = tacit.run(config, quiet=True)
    from tacit.tasks import catalogue

    test = catalogue.load("digits").test
    loaded = tacit.load(tmp_path / "run")
    assert loaded.evaluate((test.features, test.labels))["accuracy"] == pytest.approx(result.test_accuracy)


def test_scattering_features_of_own_images() -> None:
    pixels = GENERATOR.normal(size=(30, 1, 16, 16)).astype(np.float32)
    labels = (pixels[:, 0, :8].mean((1, 2)) > 0).astype(int)
    given: dict[str, Any] = {"clients": [(pixels, labels)] * 2, "test": (pixels, labels)}
    federation, result = _fit(rounds=2, model="scatter-linear", features="scatter", **given)
    assert result.parameters == 81 * 4 * 4 * 2 + 2
    assert federation.predict(pixels).shape == (30,)
    assert federation.evaluate((pixels, labels))["accuracy"] == pytest.approx(federation.evaluate()["accuracy"])
    assert (
        _fit(rounds=2, model="scatter-linear", data={"features": "scatter"}, **given)[1].parameters == result.parameters
    )


def test_real_frames_of_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(_patients(120))
    frame["stage"] = pandas.Categorical(np.where(frame["age"] > 50, "late", "early"))
    frame["grade"] = pandas.array([None, *range(119)], dtype="Int64")
    frame["smokes"] = frame["sex"] == "m"
    federation = tacit.Federation(model="logistic", clients=frame, label="outcome", client="hospital", seed=1)
    assert federation.fit(rounds=3, quiet=True).client_names == ("north", "south")
    assert federation.evaluate(frame)["accuracy"] > 0.7
    assert set(federation.predict(frame.drop(columns=["outcome", "hospital"]))) <= {"healthy", "ill"}
    numbers, outcomes = frame[["smokes"]], frame["outcome"]
    pairs = tacit.Federation(model=nn.Linear(1, 2), clients={"a": (numbers, outcomes)}, test=(numbers, outcomes))
    assert pairs.fit(rounds=1, quiet=True).test_accuracy is not None


def test_real_data_sets_of_hugging_face() -> None:
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(_patients(60))
    federation = tacit.Federation(model="logistic", clients=table, label="outcome", client="hospital", seed=1)
    assert federation.fit(rounds=1, quiet=True).client_names == ("north", "south")
    pixels = GENERATOR.random((20, 4, 4), dtype=np.float32)
    kinds = {"image": datasets.Array2D((4, 4), "float32"), "label": datasets.ClassLabel(names=["cat", "dog"])}
    images = {"image": pixels, "label": [0, 1] * 10}
    data = datasets.DatasetDict(train=datasets.Dataset.from_dict(images, features=datasets.Features(kinds)))
    tensors = data["train"].with_format("torch")
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
    seen = tacit.Federation(model=model, clients=[tensors, tensors], test=tensors)
    assert seen.fit(rounds=1, quiet=True).test_accuracy is not None
    with pytest.raises(ConfigError, match="parts of one data set, and no clients"):
        tacit.Federation(model=model, clients=data)


def test_a_real_transformer() -> None:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=8, num_labels=2, **small)
    tokens = torch.from_numpy(GENERATOR.integers(0, 50, (40, 8)))
    labels = (tokens[:, 0] > 25).long()
    clients = [(tokens[:20], labels[:20]), (tokens[20:], labels[20:])]

    def fitted() -> Any:
        torch.manual_seed(1)
        model = transformers.BertForSequenceClassification(config)
        return tacit.Federation(model=model, clients=clients, test=(tokens, labels), seed=1).fit(rounds=1, quiet=True)

    assert fitted().test_loss == fitted().test_loss


def test_completion_in_ipython() -> None:
    completer = pytest.importorskip("IPython.core.completer").IPCompleter(
        shell=None, namespace={"tacit": tacit}, use_jedi=False
    )
    with pytest.importorskip("IPython.core.completer").provisionalcompleter():
        found = {one.text.removeprefix(".") for one in completer.completions("tacit.", 6)}
    assert {"Federation", "load", "run"} <= found


def test_parts_of_a_data_set_are_no_clients_and_bytes_are_pixels() -> None:
    class Parts(dict[str, Any]):
        column_names: Any = None

    pixels, labels = GENERATOR.integers(0, 256, (20, 4), dtype=np.uint8), [0, 1] * 10
    rows = Rows(image=torch.from_numpy(pixels), label=labels)
    with pytest.raises(ConfigError, match=r"'train', 'test' are the parts.*data\['train'\]\.shard"):
        tacit.Federation(model=nn.Linear(4, 2), clients=Parts(train=rows, test=rows))
    federation = tacit.Federation(model=nn.Linear(4, 2), clients=[rows], test=rows)
    assert federation.fit(rounds=1, quiet=True).test_accuracy is not None
