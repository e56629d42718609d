"""The Python way in: your own module and your own data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate

from tacit.errors import ConfigError, DataError
from tacit.federated.plan import Injector
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.config import RunConfig
from tacit.runs.modes import plan_of
from tacit.runs.observer import Observer, Silent
from tacit.runs.result import Result
from tacit.runs.start import GIVEN, execute
from tacit.training.hooks import Hook, Hooks
from tacit.training.settings import Loss, cross_entropy, squared_error

Examples = Dataset[Any] | tuple[Any, Any]
_LOSSES: Mapping[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}


class Federation:
    """A model and the data of each client.

    ``clients`` are :class:`torch.utils.data.Dataset` objects or pairs of arrays (features, labels), one a client;
    they are brought into memory once. :meth:`fit` trains ``model`` in place.

    >>> federation = Federation(
    ...     model=nn.Linear(2, 2),
    ...     clients=[(np.eye(2), np.array([0, 1])), (np.eye(2), np.array([0, 1]))],
    ...     seed=1,
    ... )
    >>> len(federation.fit(rounds=2).rounds)
    2
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        clients: Sequence[Examples],
        test: Examples | None = None,
        loss: str | Loss = "cross-entropy",
        **settings: Any,
    ) -> None:
        """Collect the parts.

        Args:
            model: the module to train.
            clients: each client's examples.
            test: examples the server tests on after each round.
            loss: ``cross-entropy``, ``squared-error``, or a function from outputs and labels to one loss an example.
            **settings: sections and keys of the configuration, such as ``optimizer={"lr": 0.1}`` or ``seed=1``.
        """
        if not clients:
            raise ConfigError("Expected at least one client, got none.")
        if isinstance(loss, str) and loss not in _LOSSES:
            raise ConfigError(f"Unknown loss {loss!r}. Known: {', '.join(_LOSSES)}, or a function of your own.")
        self._model = model
        self._settings = settings
        self._loss = _LOSSES[loss] if isinstance(loss, str) else loss
        self._parts = [_tensors(data, f"client {number}") for number, data in enumerate(clients)]
        self._test = None if test is None else _tensors(test, "the test set")
        shapes = {(part[0].shape[1:], part[1].shape[1:]) for part in self._parts}
        if len(shapes) > 1:
            raise DataError(f"Expected examples of one shape from all clients, got {sorted(map(str, shapes))}.")
        if self._test is not None and (self._test[0].shape[1:], self._test[1].shape[1:]) not in shapes:
            raise DataError(
                f"Expected test examples of the clients' shape {tuple(self._parts[0][0].shape[1:])}, "
                f"got {tuple(self._test[0].shape[1:])}."
            )
        self.training_hooks = Hooks.for_training()
        self.evaluation_hooks = Hooks.for_evaluation()
        self._injectors: list[Injector] = []

    def register(self, point: str, hook: Hook, *, position: int | None = None, during: str = "training") -> None:
        """Add a hook to training or evaluation; see :mod:`tacit.training.hooks`."""
        tables = {"training": self.training_hooks, "evaluation": self.evaluation_hooks}
        if during not in tables:
            raise ConfigError(f"Expected during='training' or 'evaluation', got {during!r}.")
        tables[during].register(point, hook, position)

    def register_injector(self, injector: Callable[[Any, int], Any]) -> None:
        """Add a function that the server calls on the model's vector, with the round, before each broadcast."""
        self._injectors.append(injector)

    def fit(
        self,
        *,
        rounds: int,
        out: Path | str | None = None,
        observer: Observer | None = None,
        force: bool = False,
    ) -> Result:
        """Train for ``rounds`` and return the result; the model holds the new weights afterwards."""
        settings = dict(self._settings)
        settings["federate"] = {"clients": len(self._parts)} | dict(settings.get("federate", {})) | {"rounds": rounds}
        if out is not None:
            settings["out"] = out
        config = RunConfig(**settings)
        randomness = Randomness.of(seed=config.seed)
        return execute(lambda: self._job(config), randomness, config.out, observer or Silent(), force=force)

    def _job(self, config: RunConfig) -> jobs.Job:
        ends = np.cumsum([len(part[1]) for part in self._parts])
        name = type(self._model).__name__
        return jobs.assemble(
            config=config,
            title=f"{name}, {len(self._parts)} clients",
            dataset=GIVEN,
            model_name=name,
            module=self._model,
            plan=plan_of(config, len(self._parts)),
            train=(
                torch.cat([part[0] for part in self._parts]),
                torch.cat([part[1] for part in self._parts]),
            ),
            rows=np.split(np.arange(ends[-1]), ends[:-1]),
            test=self._test,
            device=jobs.device_of(config.gpu),
            loss=self._loss,
            training_hooks=self.training_hooks,
            evaluation_hooks=self.evaluation_hooks,
            injectors=tuple(self._injectors),
        )


def _tensors(data: Examples, whose: str) -> tuple[Tensor, Tensor]:
    """Return features and labels of a data set or a pair of arrays."""
    if isinstance(data, IterableDataset) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise DataError(f"Expected a map-style Dataset or a pair of arrays for {whose}, got {type(data).__name__}.")
    if isinstance(data, TensorDataset):
        data = cast(tuple[Any, Any], data.tensors)  # how many there are is checked below
    if isinstance(data, Dataset):
        if len(data) == 0:
            raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
        try:
            data = tuple(default_collate([data[i] for i in range(len(data))]))
        except (RuntimeError, TypeError) as error:
            raise DataError(f"The examples of {whose} can't be stacked: {error}. They need one shape.") from error
    if len(data) != 2:
        raise DataError(f"Expected pairs of features and label for {whose}, got {len(data)} parts.")
    features, labels = (torch.as_tensor(part) for part in data)
    if len(features) != len(labels):
        raise DataError(f"Expected as many labels as examples for {whose}, got {len(labels)} and {len(features)}.")
    if len(labels) == 0:
        raise DataError(f"{whose[0].upper()}{whose[1:]} holds no example. Leave it out.")
    if features.is_floating_point():
        features = features.float()
        if not bool(torch.isfinite(features).all()):
            raise DataError(f"The features of {whose} hold NaN or infinity.")
    return features, labels.float() if labels.is_floating_point() else labels.long()
