"""A trained model with what it takes to use it: names of classes, how tables are encoded, what it sees of images."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

import tacit
from tacit import foreign
from tacit.errors import ConfigError, DataError, RunError
from tacit.runs.folder import MODEL, config_of, must_have_begun, records_of
from tacit.runs.journal import Start
from tacit.storage import write_atomically
from tacit.tasks import models, tables
from tacit.tasks.features import Features
from tacit.tasks.tables import Encoding
from tacit.training.evaluation import Evaluator, decided
from tacit.training.examples import arrays, columns_of, from_column, is_flat, label_of, labels_of
from tacit.training.metrics import Metric, metrics_named
from tacit.training.outputs import as_tensors
from tacit.training.parameters import Parameters
from tacit.training.settings import LOSSES, Loss, cross_entropy, gives_logits
from tacit.training.trial import check_fit

_FORMAT = "tacit"  # the key of the metadata in a file


@dataclass(frozen=True, kw_only=True)
class Trained:
    """A model that predicts; made by :meth:`tacit.Federation.fit` and by :func:`tacit.load`.

    Attributes:
        model: the module.
        loss: what it was trained with.
        classes: the names of the classes; empty where they are numbers.
        encoding: how columns of a table become features.
        label: the labels' column in tables.
        features: what the model sees of images.
        shape: of one example, as the model sees it.
        name: of the model.
        outputs: how many classes it was built for, where it was built by its name.
    """

    model: nn.Module
    loss: Loss = cross_entropy
    classes: Sequence[str] = ()
    encoding: Encoding | None = None
    label: str | None = None
    features: Features = field(default_factory=Features)
    shape: tuple[int, ...] = ()
    name: str = ""
    outputs: int | None = None

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the class of each example, by its name where classes have names, or the outputs where there are none.

        Args:
            data: features: an array, a data frame, a table or a CSV file.
        """
        outputs = torch.from_numpy(self._outputs(data))
        named = decided(outputs, None, one_logit=gives_logits(self.loss))
        if named is None or (self.loss not in (cross_entropy, LOSSES["binary-cross-entropy"]) and not self.classes):
            return outputs.numpy()
        numbers: NDArray[Any] = named.numpy()
        return np.array(self.classes)[numbers] if self.classes else numbers

    def predict_proba(self, data: Any) -> NDArray[Any]:
        """Return how likely each class is for each example, ``(n, classes)``, as the model's softmax has it."""
        outputs = torch.from_numpy(self._outputs(data))
        if gives_logits(self.loss):
            one = torch.sigmoid(outputs.reshape(len(outputs)))
            likely: NDArray[Any] = torch.stack([1 - one, one], 1).numpy()
            return likely
        if outputs.dim() != 2 or (self.loss is not cross_entropy and not self.classes):
            raise ConfigError(
                "The model's outputs are no probabilities of classes: it was trained with another loss than "
                "cross-entropy. Use predict, which returns the outputs."
            )
        shares: NDArray[Any] = torch.softmax(outputs, 1).numpy()
        return shares

    def evaluate(self, data: Any, *, metrics: Any = ()) -> dict[str, float]:
        """Return loss, accuracy where it has a meaning, and ``metrics``, of labelled examples.

        Args:
            data: a pair of features and labels, a data set, a table or a CSV file.
            metrics: names such as ``auc`` and ``f1``, or functions; see :mod:`tacit.training.metrics`.
        """
        features, labels = self.examples(data, "the data")
        with as_tensors(self.model, features):
            check_fit(self.model, self.loss, features, labels, whose="the data")
            evaluator = self._evaluator(metrics_named(metrics))
            try:
                score = evaluator.score(self._vector(), features.to(self._device), labels.to(self._device))
            finally:
                evaluator.close()
        return score.told()

    def save(self, path: Path | str) -> Path:
        """Write weights, classes and encodings to one file, without code; :func:`tacit.load` reads it."""
        place = Path(path)
        if place.is_dir():
            raise ConfigError(f"Expected a file to save the model in, such as model.safetensors, {place} is a folder.")
        loss = next((name for name, known in LOSSES.items() if known is self.loss), None)
        about = {
            "version": tacit.__version__,
            "model": self.name,
            "outputs": self.outputs,
            "shape": list(self.shape),
            "classes": list(self.classes),
            "encoding": None if self.encoding is None else self.encoding.to_plain(),
            "label": self.label,
            "features": [self.features.kind, self.features.scales, self.features.angles],
            "loss": loss,
        }
        tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in self.model.state_dict().items()}
        write_atomically(place, save(tensors, metadata={_FORMAT: json.dumps(about)}))
        return place

    def examples(self, data: Any, whose: str) -> tuple[Tensor, Tensor]:
        """Return features as the model sees them, and labels as numbers."""
        columns = columns_of(_read(data), whose)
        if columns is None:
            features, labels = arrays(data, whose)
        else:
            label = label_of(columns, self.label, whose)
            features = self._of_columns(columns, label, whose)
            labels = (
                torch.from_numpy(self.encoding.labels(columns[label], whose))
                if self.encoding is not None
                else labels_of(columns[label], f"The labels of {whose}")
            )
        return self.features.of(features, whose), numbered(labels, self.classes, whose)

    def _of_columns(self, columns: Mapping[str, Any], label: str | None, whose: str) -> Tensor:
        if self.encoding is not None:
            return torch.from_numpy(self.encoding.features(columns))
        rest = {name: column for name, column in columns.items() if name != label}
        return single_column(rest, whose)

    def _outputs(self, data: Any) -> NDArray[Any]:
        whose = "the data"
        columns = columns_of(_read(data), whose)
        if columns is not None and self.encoding is None and all(is_flat(column) for column in columns.values()):
            columns = None if hasattr(data, "to_numpy") else columns  # a frame of numbers, as features were given
        if columns is None:
            features = from_column(data, "The features")
        else:
            features = self._of_columns(columns, self.label, whose)
        features = self.features.of(features, whose)
        found = tuple(features.shape[1:])
        if self.shape and found != self.shape:
            raise DataError(f"Expected examples of shape {self.shape}, as the model was trained on, got {found}.")
        with as_tensors(self.model, features):
            evaluator = self._evaluator({})
            try:
                return evaluator.outputs(self._vector(), features.to(self._device))
            finally:
                evaluator.close()

    @property
    def _device(self) -> torch.device:
        return next(self.model.parameters()).device

    def _vector(self) -> NDArray[Any]:
        vector: NDArray[Any] = Parameters.of(self.model).read(self.model).cpu().numpy()
        return vector

    def _evaluator(self, metrics: Mapping[str, Metric]) -> Evaluator:
        return Evaluator(
            module=self.model, loss=self.loss, device=self._device, workers=1, metrics=metrics, classes=self.classes
        )


def numbered(labels: Tensor | Sequence[str], classes: Sequence[str], whose: str) -> Tensor:
    """Return labels as numbers: text by its place among the classes."""
    if isinstance(labels, Tensor):
        return labels
    places = {name: place for place, name in enumerate(classes)}
    unknown = next((label for label in labels if label not in places), None)
    if unknown is not None:
        raise DataError(
            f"The label {unknown!r} of {whose} is not among the classes {', '.join(map(repr, classes)) or '(none)'}."
        )
    return torch.tensor([places[label] for label in labels], dtype=torch.int64)


def single_column(columns: Mapping[str, Any], whose: str) -> Tensor:
    """Return the features of the one column that is left beside the labels."""
    if len(columns) != 1:
        raise DataError(
            f"Expected one column of arrays or images beside the labels of {whose}, or columns of single values, got "
            f"{', '.join(map(repr, columns)) or 'none'}. Keep one, such as dataset.select_columns([...])."
        )
    name, column = next(iter(columns.items()))
    return from_column(column, f"Column {name!r} of {whose}")


def _read(data: Any) -> Any:
    """Return a table, also of a CSV file's path."""
    if isinstance(data, Path) or (isinstance(data, str) and tables.is_file(data)):
        return tables.read_csv(Path(data))
    return data


def load(path: Path | str, *, model: nn.Module | None = None) -> Trained:
    """Return the model of a run's folder, or of a file that :meth:`Federation.save` wrote, ready to predict.

    Args:
        path: the folder or the file.
        model: the module that the weights are for, where it is a class of your own: no code is saved.
    """
    place = Path(path)
    about = _of_folder(place) if place.is_dir() else {}
    file = place / MODEL if place.is_dir() else place
    if not file.is_file():
        raise RunError(f"There is no model at {place}. Give a run's folder, or a file that save() wrote.")
    try:
        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
        about = about or foreign.json_object(metadata.get(_FORMAT, "{}"))
    except (SafetensorError, OSError, ValueError) as error:
        raise RunError(f"{file} is damaged, or no model: {error}.") from error
    module: Any = model if model is not None else _built(about, place)
    if not isinstance(module, nn.Module):
        kind = getattr(module, "__name__", type(module).__name__)
        raise ConfigError(f"Expected a torch.nn.Module as the model, got {kind}.")
    try:
        module.load_state_dict(weights)
    except RuntimeError as error:
        lines = " ".join(str(error).split())[:300]
        raise ConfigError(f"The weights of {file} are not those of this {type(module).__name__}: {lines}") from error
    kind, scales, angles = about.get("features") or ("none", 2, 8)
    if kind not in ("none", "scatter"):
        raise RunError(f"{file} asks for features {kind!r}, which this version does not know.")
    encoding = about.get("encoding")
    return Trained(
        model=module.eval(),
        loss=LOSSES.get(about.get("loss") or "", cross_entropy),
        classes=tuple(about.get("classes") or (encoding or {}).get("classes", ())),
        encoding=None if encoding is None else Encoding.from_plain(encoding),
        label=about.get("label"),
        features=Features(kind="scatter" if kind == "scatter" else "none", scales=scales, angles=angles),
        shape=tuple(about.get("shape") or ()),
        name=str(about.get("model") or type(module).__name__),
        outputs=about.get("outputs"),
    )


def _of_folder(place: Path) -> dict[str, Any]:
    must_have_begun(place)
    config = config_of(place)
    start = next((record for record in records_of(place) if isinstance(record, Start)), None)
    data = config.data
    kind = data.features if start is not None and start.outputs is not None else "none"
    told = {key: getattr(start, key, None) for key in ("shape", "outputs", "encoding", "classes")}
    seen = [kind, data.scatter_scales, data.scatter_angles]
    return {**told, "model": config.model.name, "label": data.label, "features": seen}


def _built(about: Mapping[str, Any], place: Path) -> nn.Module:
    """Return a new module of a model's name."""
    name, shape, outputs = about.get("model"), about.get("shape"), about.get("outputs")
    if not name or not shape or outputs is None or (name not in models.MODELS and ":" not in name):
        raise ConfigError(
            f"The model of {place} is {name or 'a class'} of your own, whose code is not saved. Make one and pass it: "
            "tacit.load(path, model=...)."
        )
    return models.build(name, shape=shape, classes=outputs, seed=0)
