"""The Python way in: your own module and your own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.config.resolved import Resolved, given
from tacit.config.run_config import RunConfig
from tacit.config.sections import Data, Federate, Section
from tacit.errors import ConfigError, DataError
from tacit.federated.plan import Injector
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs import logged
from tacit.runs.book import Book
from tacit.runs.given import Part, Reader, class_names, described
from tacit.runs.observer import Observer, watching
from tacit.runs.result import Result
from tacit.runs.run import GIVEN, execute
from tacit.runs.stopping import Callback, calling
from tacit.runs.trained import Trained, numbered
from tacit.shares import Shares
from tacit.tasks import models
from tacit.tasks.features import Features
from tacit.tasks.tables import Encoding, public_encoding
from tacit.training.examples import UserData
from tacit.training.hooks import Hook, Hooks
from tacit.training.metrics import metrics_named
from tacit.training.outputs import as_tensors
from tacit.training.settings import Loss, loss_named

_OF_FIT = {"rounds", "quiet", "observer", "callbacks", "early_stopping"}


class Federation:
    """A model and the data of each client.

    ``clients`` are :class:`torch.utils.data.Dataset` objects, pairs of features and labels (arrays, lists, data frames
    and their columns), or tables with a column of labels (data frames, data sets of Hugging Face, mappings): a list, or
    a mapping from the clients' names; or one data frame with a column of clients. They are brought into memory once.
    :meth:`fit` trains ``model`` in place.

    >>> import numpy as np
    >>> federation = Federation(
    ...     model=nn.Linear(2, 2),
    ...     clients={"north": (np.eye(2), ["ill", "well"]), "south": (np.eye(2), ["ill", "well"])},
    ...     seed=1,
    ... )
    >>> federation.fit(rounds=2, quiet=True).client_names
    ('north', 'south')
    >>> federation.classes
    ('ill', 'well')
    """

    def __init__(
        self,
        *,
        model: nn.Module | str,
        clients: Sequence[UserData] | Mapping[str, UserData] | Any,
        test: UserData | None = None,
        loss: str | Loss | nn.Module = "cross-entropy",
        label: str | None = None,
        client: Any = None,
        columns: Mapping[str, Any] | None = None,
        classes: Sequence[str] | None = None,
        features: str | None = None,
        metrics: Any = (),
        optimizer: Any = None,
        schedule: Callable[[int], float] | None = None,
        **settings: Any,
    ) -> None:
        """Collect the parts.

        Args:
            model: the module to train, or the name of one of Tacit's, such as ``logistic`` or ``mlp``.
            clients: each client's examples.
            test: examples the server tests on after each round; they count as public.
            loss: ``cross-entropy``, ``squared-error``, ``binary-cross-entropy`` (one logit per example), a loss of
                :mod:`torch.nn`, or a function from outputs and labels to one loss per example.
            label: of tables, the column that is to be predicted; ``label`` if left out.
            client: of one table for all clients, the name of the column that says whose a row is; of one pair of arrays
                for all clients, an array that says it. The way to pass very many clients.
            columns: what is publicly known of a table's columns: a range ``[low, high]`` or categories; needed where
                privacy is claimed and ``test`` is no table.
            classes: the names of the classes, where labels are text; needed where privacy is claimed and ``test`` does
                not show them.
            features: ``scatter`` for scattering features of images, which cost no privacy.
            metrics: what a test also computes: ``auc``, ``f1``, ``precision``, ``recall``, ``per-class``,
                ``balanced-accuracy``, or functions of outputs and labels; see :mod:`tacit.training.metrics`.
            optimizer: settings such as ``{"name": "adamw", "lr": 0.001}``, a name, or a function from parameters to an
                optimiser of :mod:`torch.optim`.
            schedule: a function from the round, counted from 1, to its learning rate.
            **settings: sections and keys of the configuration, such as ``mode="dp"``, ``dp={"epsilon": 8.0}``.
        """
        for name in _OF_FIT & settings.keys():
            raise ConfigError(f"{name!r} belongs to a fit, not to the federation: federation.fit({name}=...).")
        self._settings = settings
        self._loss = loss_named(loss)
        self._own = self._training(optimizer, schedule)
        self._metrics = metrics_named(metrics)
        self._features = self._seen(features)
        self._label = label
        self._described = described(columns)
        read = Reader(label=label, owner=client)
        given = read.clients(clients)
        self._names, parts, whose = given.names, given.parts, given.whose
        tested = None if test is None else read.part(test, "the test set")
        if classes is not None and (isinstance(classes, str) or not all(isinstance(one, str) for one in classes)):
            raise ConfigError(f"Expected the classes' names as a list of text, got {classes!r:.80}.")
        self._encoding = self._encoded(parts, tested, classes)
        self.classes, self._classes_from = class_names(parts, tested, classes, self._encoding, (*whose, "the test set"))
        held = [self._tensors(part, name) for part, name in zip(parts, whose, strict=True)]
        self._test = None if tested is None else self._tensors(tested, "the test set")
        shapes = {(part[0].shape[1:], part[1].shape[1:]): name for part, name in zip(held, whose, strict=True)}
        if len(shapes) > 1:
            (one, first), (other, second), *_ = shapes.items()
            raise DataError(
                f"Expected examples of one shape from all clients, got {_shapes(one)} from {first} and "
                f"{_shapes(other)} from {second}."
            )
        if self._test is not None and (self._test[0].shape[1:], self._test[1].shape[1:]) not in shapes:
            raise DataError(
                f"Expected test examples of the clients' shape {tuple(held[0][0].shape[1:])}, "
                f"got {tuple(self._test[0].shape[1:])}."
            )
        self._shares = given.shares or Shares.of_sizes([len(labels) for _, labels in held])
        self._train = held[0] if len(held) == 1 else (torch.cat([x for x, _ in held]), torch.cat([y for _, y in held]))
        self._model = self._built(model) if isinstance(model, str) else model
        self._model_name = model if isinstance(model, str) else type(model).__name__
        self._outputs = self._count_classes() if isinstance(model, str) else None
        self.training_hooks = Hooks.for_training()
        self.evaluation_hooks = Hooks.for_evaluation()
        self._injectors: list[Injector] = []
        self._book = Book()

    @property
    def model(self) -> nn.Module:
        """The module that :meth:`fit` trains in place."""
        return self._model

    @property
    def client_names(self) -> tuple[str, ...]:
        """The clients' names; their numbers where they have none."""
        return self._names or tuple(str(number) for number in range(len(self._shares)))

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
        quiet: bool = False,
        callbacks: Iterable[Callback] = (),
        early_stopping: int | None = None,
    ) -> Result:
        """Train for ``rounds`` and return the result; the model holds the new weights afterwards.

        A line per round says how far it is, unless ``quiet``; an ``observer`` is told instead. Each of ``callbacks`` is
        called with every round's record, and ends the fit by returning True. ``early_stopping`` is after how many tests
        without a lower test loss it ends; the test data count as public.

        Another fit goes on with the same model and the same clients' data, so its releases are charged on top of those
        of the fits before, also of one that failed: epsilon and budgets are those of all fits together. A budget given
        as ``dp.epsilon`` is all spent by the first; for several fits give ``dp.noise`` and ``dp.max_epsilon``.
        """
        settings = dict(self._settings)
        settings["federate"] = self._federate(settings.get("federate")) | {"rounds": rounds}
        if out is not None:
            settings["out"] = out
        if early_stopping is not None:
            settings["evaluate"] = _values(settings.get("evaluate"), "evaluate") | {"patience": early_stopping}
        config = RunConfig(**settings)
        logged.check(config)
        stops = calling(callbacks)
        randomness = Randomness.of(seed=config.seed)
        before = self._book.releases
        if self._book.fits:  # a seed gives each fit draws of its own
            randomness = randomness.within("fit", self._book.fits)
        try:
            with as_tensors(self._model, self._train[0]):
                return execute(
                    lambda: self._job(config, randomness, stops),
                    randomness,
                    config.out,
                    watching(observer, quiet=quiet),
                    force=force,
                    book=self._book,
                )
        finally:
            self._book.fits += self._book.releases > before

    def predict(self, data: Any) -> NDArray[Any]:
        """Return the class of each example, by its name where classes have names; see :class:`Trained`."""
        return self.trained().predict(data)

    def predict_proba(self, data: Any) -> NDArray[Any]:
        """Return how likely each class is for each example, ``(n, classes)``."""
        return self.trained().predict_proba(data)

    def evaluate(self, data: Any = None, *, metrics: Any = None) -> dict[str, float]:
        """Return loss, accuracy and metrics of labelled examples, or of the test data if none are given."""
        asked = self._metrics if metrics is None else metrics
        if data is not None:
            return self.trained().evaluate(data, metrics=asked)
        if self._test is None:
            raise ConfigError(
                "There are no test data to evaluate on. Pass some: federation.evaluate((features, labels))."
            )
        return self._as_seen().evaluate(self._test, metrics=asked)

    def evaluate_clients(self, *, metrics: Any = None) -> dict[str, dict[str, float]]:
        """Return loss, accuracy and metrics on each client's own examples, by the clients' names.

        Only where nothing is hidden from whoever reads them: not in a mode that encrypts, masks or adds noise.
        """
        config = RunConfig(**self._settings)
        mode = mode_of(config.mode)
        if mode.private(config) or mode.hidden or _asks_dpsgd(config):
            raise ConfigError(jobs.of_one_client(config.mode))
        asked = self._metrics if metrics is None else metrics
        seen, (features, labels) = self._as_seen(), self._train
        return {
            name: seen.evaluate((features[rows], labels[rows]), metrics=asked)
            for name, rows in zip(self.client_names, map(torch.from_numpy, self._shares), strict=True)
        }

    def save(self, path: Path | str) -> Path:
        """Write the model's weights, its classes and encodings to one file, which :func:`tacit.load` reads."""
        return self.trained().save(path)

    def trained(self) -> Trained:
        """Return the model as it is now, ready to predict."""
        return Trained(
            model=self._model,
            loss=self._loss,
            classes=self.classes,
            encoding=self._encoding,
            label=self._label,
            features=self._features,
            shape=tuple(self._train[0].shape[1:]),
            name=self._model_name,
            outputs=self._outputs,
        )

    def _as_seen(self) -> Trained:
        """Return the model for examples that have their features already."""
        return replace(self.trained(), features=Features(), encoding=None)

    def _training(self, optimizer: Any, schedule: Any) -> dict[str, Any]:
        """Return what a user made for local training, and put what is a setting among the settings."""
        own: dict[str, Any] = {}
        if schedule is not None:
            if not callable(schedule):
                raise ConfigError(
                    f"Expected schedule as a function of the round, got {schedule!r:.80}. Schedules by name "
                    "are optimizer={'schedule': 'cosine'}."
                )
            own["own_schedule"] = schedule
        if isinstance(optimizer, torch.optim.Optimizer):
            raise ConfigError(
                "Expected a function that makes an optimiser, as each client has its own, got an optimiser. Write "
                f"optimizer=lambda parameters: torch.optim.{type(optimizer).__name__}(parameters, lr=...)."
            )
        if callable(optimizer) and not isinstance(optimizer, Section):
            own["factory"] = optimizer
            self._settings["optimizer"] = {"lr": 1.0, "final": 1.0}  # the factory's own rate, as it is
            if schedule is not None:
                raise ConfigError(
                    "Expected an optimiser of your own or a schedule, got both. Give optimizer={'name': ...}."
                )
        elif isinstance(optimizer, str):
            self._settings["optimizer"] = {"name": optimizer}
        elif optimizer is not None:
            self._settings["optimizer"] = optimizer
        return own

    def _seen(self, features: str | None) -> Features:
        """Return what the model sees of images; features are a setting of the section data too."""
        section = self._settings.get("data")
        if features is None and section is None:
            return Features()
        values = _values(section, "data")
        data: Data = RunConfig(data=values if features is None else values | {"features": features}).data
        self._settings["data"] = data
        return jobs.features_of(data)

    def _encoded(self, parts: list[Part], tested: Part | None, classes: Sequence[str] | None) -> Encoding | None:
        """Return how the columns of tables become features, where clients have tables."""
        kinds = {part.table is not None for part in (*parts, *(() if tested is None else (tested,)))}
        if kinds == {False}:
            if self._described:
                raise ConfigError("columns=... is for tables, and arrays were given. Leave it out.")
            return None
        if len(kinds) > 1:
            raise DataError("Expected tables with a column of labels from all clients and for the test, or from none.")
        assert parts[0].table is not None
        absent = [name for part in parts for name in parts[0].table if name not in (part.table or ())]
        if absent:
            raise DataError(f"Expected the same columns from all clients, {absent[0]!r} is not in every table.")
        table = {name: [value for part in parts for value in (part.table or {})[name]] for name in parts[0].table}
        label = parts[0].label or "label"
        self._label = label
        described = dict(self._described)
        if classes is not None:
            described.setdefault(label, list(classes))
        config = RunConfig(**self._settings)
        return public_encoding(
            table,
            [one for part in parts for one in part.labels],
            label=label,
            described=described,
            public=None if tested is None or tested.table is None else (tested.table, tested.labels),
            private=mode_of(config.mode).private(config) or _asks_dpsgd(config),
            whose="the clients",
        )

    def _tensors(self, part: Part, whose: str) -> tuple[Tensor, Tensor]:
        if part.table is not None:
            assert self._encoding is not None
            features = torch.from_numpy(self._encoding.features(part.table))
            labels: Tensor = torch.from_numpy(self._encoding.labels(part.labels, whose))
        else:
            assert part.features is not None
            features, labels = part.features, numbered(part.labels, self.classes, whose)
        return self._features.of(features, whose), labels

    def _count_classes(self) -> int:
        labels = [labels for _, labels in (self._train, *(() if self._test is None else (self._test,)))]
        if any(part.is_floating_point() or part.dim() != 1 for part in labels):
            raise ConfigError("Tacit's own models classify. For other labels pass a module: model=nn.Linear(..., 1).")
        if self.classes:
            return len(self.classes)
        config = RunConfig(**self._settings)
        if mode_of(config.mode).private(config) or _asks_dpsgd(config):
            if self._test is None:
                raise ConfigError(
                    "How many classes there are would be read off the clients' labels, and epsilon does not cover "
                    "that. Name them, if they are publicly known: classes=['0', '1']."
                )
            labels = [self._test[1]]
        return int(max(part.max() for part in labels)) + 1

    def _built(self, name: str) -> nn.Module:
        """Return a new module of one of Tacit's models."""
        seed = Randomness.of(seed=RunConfig(**self._settings).seed).number("weights")
        shape = tuple(self._train[0].shape[1:])
        return models.build(name, shape=shape, classes=self._count_classes(), seed=seed)

    def _federate(self, given: Any) -> dict[str, Any]:
        """Return the federation's settings; how many clients there are is not a matter of choice."""
        if not (given is None or isinstance(given, Mapping | Federate)):
            raise ConfigError(f"federate={given!r} does not work: expected settings such as {{'per_round': 2}}.")
        settings = dict(given or {}) if not isinstance(given, Federate) else given.model_dump(exclude_unset=True)
        clients = settings.setdefault("clients", len(self._shares))
        if clients not in (None, len(self._shares)):
            raise ConfigError(
                f"federate.clients={clients!r} does not work: {len(self._shares)} clients were given. Leave it out."
            )
        return settings

    def _job(self, config: RunConfig, randomness: Randomness, stops: Sequence[Any]) -> jobs.Job:
        name = self._model_name
        resolved = given(resolve(config), model=name)
        plan = plan_of(resolved, len(self._shares))
        if plan.private and self._classes_from == "the clients' labels":
            raise ConfigError(
                "The names of the classes would be read off the clients' labels, and epsilon does not cover that. Pass "
                f"them: classes={list(self.classes[:6])!r}, if they are publicly known."
            )
        return jobs.assemble(
            config=resolved,
            title=f"{name}, {len(self._shares)} clients",
            dataset=GIVEN,
            model_name=name,
            module=self._model,
            plan=plan,
            train=self._train,
            rows=self._shares,
            test=self._test,
            device=jobs.device_of(config.gpu),
            randomness=randomness,
            loss=self._loss,
            training_hooks=self.training_hooks,
            evaluation_hooks=self.evaluation_hooks,
            injectors=tuple(self._injectors),
            notes=self._notes(resolved),
            names=self._names,
            classes=tuple(self.classes),
            encoding=self._encoding,
            outputs=self._outputs,
            metrics=self._metrics,
            stops=stops,
            own=self._own,
        )

    def _notes(self, config: Resolved) -> tuple[str, ...]:
        said = []
        if self._encoding is not None:
            said.append(
                f"Columns were scaled and encoded with constants from {self._encoding.source}; a missing value is its "
                "column's centre."
            )
        if config.evaluate.patience is not None:
            said.append("The test data, by whose loss the fit may stop early, count as public.")
        return tuple(said)


def _asks_dpsgd(config: RunConfig) -> bool:
    return config.dpsgd.noise is not None or config.dpsgd.epsilon is not None


def _values(section: Any, name: str) -> dict[str, Any]:
    """Return the settings of a section that were given."""
    if isinstance(section, Section):
        return section.model_dump(exclude_unset=True)
    if section is None or isinstance(section, Mapping):
        return dict(section or {})
    raise ConfigError(f"{name}={section!r:.80} does not work: expected settings such as {{'key': value}}.")


def _shapes(shapes: tuple[torch.Size, torch.Size]) -> str:
    features, labels = (tuple(shape) for shape in shapes)
    return f"features {features}" + (f" with labels {labels}" if labels else "")
