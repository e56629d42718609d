"""From a configuration to everything that trains: data on their device, model, plan, trainer, evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tacit.config.resolved import Resolved
from tacit.config.sections import Data
from tacit.errors import ConfigError, DeviceError
from tacit.federated.examples import ExamplePlan
from tacit.federated.plan import Injector, Plan
from tacit.modes import outlook
from tacit.modes.catalogue import mode_of, plan_of
from tacit.randomness import Randomness
from tacit.runs.chance import Chance
from tacit.runs.observer import Observer
from tacit.runs.run import is_own
from tacit.runs.stopping import Patience, Stop
from tacit.tasks import catalogue, models, partition, tables
from tacit.tasks.data import DataSet
from tacit.tasks.features import Features
from tacit.tasks.tables import Encoding
from tacit.training.batches import Holdings
from tacit.training.cohort import CohortTrainer
from tacit.training.evaluation import Evaluator
from tacit.training.forms import cohort_trainer
from tacit.training.hooks import Hooks
from tacit.training.metrics import Metric, metrics_named
from tacit.training.outputs import give_tensors
from tacit.training.private.clients import PrivateClients, PrivateHolder
from tacit.training.private.clipping import Clipping
from tacit.training.private.normalisation import OF_CLIENTS, OF_EXAMPLES, check_normalisation
from tacit.training.private.steps import PoissonBatches
from tacit.training.settings import LocalTraining, Loss, cross_entropy
from tacit.training.trial import check_batches, check_fit, check_trains

_MOST_NAMES = 1_000
_MOST_TOLD = 10_000  # of a user's own clients


@dataclass(frozen=True, kw_only=True)
class Job:
    """What the runner runs."""

    config: Resolved
    title: str
    dataset: str
    model_name: str
    module: nn.Module
    plan: Plan
    holdings: Holdings
    trainer: CohortTrainer | PrivateClients
    evaluator: Evaluator
    test: tuple[Tensor, Tensor] | None
    examples: ExamplePlan | None = None  # DP-SGD inside the clients
    notes: tuple[str, ...] = ()  # what was told while it was made
    names: tuple[str, ...] = ()  # of the clients, by their numbers; without any they are numbers
    remarks: tuple[str, ...] = ()  # what its mode has to say before the first round
    advice: str = ""  # what to do about a model that is no number any more
    classes: tuple[str, ...] = ()  # of the labels, where they have names
    encoding: Encoding | None = None  # of a table's columns
    outputs: int | None = None  # how many classes the model was built for
    stops: tuple[Stop, ...] = ()  # what may end the run before its last round

    @property
    def chance(self) -> Chance | None:
        """What a model reaches on the test data that has learned nothing."""
        return None if self.test is None else Chance.of(self.test[1])

    @property
    def told_names(self) -> tuple[str, ...]:
        """The clients' names, where they may be told: not of a user's own, where epsilon may hide who took part.

        Nor where they are very many. DP-SGD alone hides single examples: who the clients are, and how many examples
        each has, counts as public.
        """
        hidden = is_own(self.dataset) and self.plan.claim is not None
        return () if hidden or len(self.names) > _MOST_TOLD else self.names

    def name_of(self, client: int) -> str:
        """Return a client's name where it has one that may be told, or its number."""
        return self.told_names[client] if client < len(self.told_names) else str(client)

    def close(self) -> None:
        """Stop the workers."""
        self.trainer.close()
        self.evaluator.close()


def build(
    config: Resolved,
    randomness: Randomness,
    observer: Observer,
    *,
    notes: tuple[str, ...] = (),
    loaded: tuple[DataSet, Encoding | None] | None = None,
) -> Job:
    """Load the data, split them, build the model and make the workers ready.

    Args:
        config: the run's.
        randomness: the run's.
        observer: is told what takes long.
        notes: what was told before.
        loaded: the data, where they are in memory already.
    """
    device = device_of(config.gpu)
    population = config.federate.clients
    plan = None if population is None else plan_of(config, population)  # a mistake shows before data are fetched
    observer.doing(f"loading {config.data.name}")
    data, encoding = load(config) if loaded is None else loaded
    if encoding is not None:
        said = _told(config, encoding)
        for note in said:
            observer.note(note)
        notes += said
    observer.doing("splitting the data and building the model")
    data = features_of(config.data).of_data(data, device, observer.note)
    spec, name = config.data.split, config.model.name
    if population is None:
        if data.groups is None:
            raise ConfigError(f"data.split=natural needs data with owners; {data.name} has none. Use data.split=iid.")
        population = len(np.unique(data.groups))
    seed = config.data.split_seed
    splitting = randomness if seed is None else Randomness.of(seed=seed)
    rows = partition.parse(spec).assign(
        data.train.labels, clients=population, groups=data.groups, generator=splitting.stream("split")
    )
    module = models.build(
        name, shape=data.train.features.shape[1:], classes=data.classes, seed=randomness.number("weights")
    )
    federate = config.federate.model_copy(update={"clients": population})
    return assemble(
        config=config.model_copy(update={"federate": federate}),
        title=f"{data.title}, {name}, "
        + ("one data holder" if config.single_holder else f"{population} clients ({spec})"),
        dataset=data.name,
        model_name=name,
        module=module,
        plan=plan or plan_of(config, population),
        train=(torch.from_numpy(data.train.features), torch.from_numpy(data.train.labels)),
        rows=rows,
        test=(torch.from_numpy(data.test.features), torch.from_numpy(data.test.labels)),
        device=device,
        randomness=randomness,
        notes=notes,
        names=_names(data, rows, spec),
        classes=() if encoding is None else encoding.classes,
        encoding=encoding,
        outputs=data.classes,
    )


def load(config: Resolved) -> tuple[DataSet, Encoding | None]:
    """Return the data set of a name, or a table of the user's own with its encoding."""
    data = config.data
    if not tables.is_file(data.name):
        own = [f"data.{key}" for key in ("label", "client", "test", "columns", "drop") if getattr(data, key)]
        if own:
            raise ConfigError(
                f"{', '.join(own)} is for CSV files, and data.name={data.name} is not the name of one, which ends in "
                ".csv. Give the file, or leave it out."
            )
        return catalogue.load(data.name, folder=data.folder, download=data.download), None
    path = Path(data.name)
    if data.folder is not None and not path.is_file():
        path = data.folder / path
    return tables.load_csv(
        path,
        label=data.label,
        client=data.client,
        test=data.test,
        description=data.columns,
        left_out=data.drop,
        private=mode_of(config.mode).private(config),
    )


def _told(config: Resolved, encoding: Encoding) -> tuple[str, ...]:
    """Return what was done to a table, for whoever reads its results."""
    constants = f"Columns were scaled and encoded with constants from {encoding.source}"
    said = [f"{constants}; a missing value is its column's centre."]
    if config.data.test is None:
        held = "Every fifth row of each class, client by client, is held out for the test"
        private = mode_of(config.mode).private(config)
        said.append(f"{held}; those rows count as public: epsilon does not cover them." if private else f"{held}.")
    return tuple(said)


def assemble(
    *,
    config: Resolved,
    title: str,
    dataset: str,
    model_name: str,
    module: nn.Module,
    plan: Plan,
    train: tuple[Tensor, Tensor],
    rows: Sequence[NDArray[np.int64]],
    test: tuple[Tensor, Tensor] | None,
    device: torch.device,
    randomness: Randomness,
    loss: Loss = cross_entropy,
    training_hooks: Hooks | None = None,
    evaluation_hooks: Hooks | None = None,
    injectors: tuple[Injector, ...] = (),
    notes: tuple[str, ...] = (),
    names: tuple[str, ...] = (),
    classes: tuple[str, ...] = (),
    encoding: Encoding | None = None,
    outputs: int | None = None,
    metrics: Mapping[str, Metric] | None = None,
    stops: Sequence[Stop] = (),
    own: Mapping[str, Any] | None = None,
) -> Job:
    """Put the parts of a job together; ``own`` is what a user made for local training, such as an optimiser."""
    if model_name not in models.MODELS:
        give_tensors(module, train[0])
    check_fit(module, loss, *train)
    check_trains(module, loss, *train)
    if test is not None:
        check_fit(module, loss, *test, whose="the test data")
    if plan.private:
        check_normalisation(module, why=OF_CLIENTS if plan.examples is None else OF_EXAMPLES)
    mode = mode_of(config.mode)
    if config.evaluate.clients and (plan.private or mode.hidden):
        raise ConfigError(of_one_client(config.mode))
    holdings = Holdings(features=train[0].to(device), labels=train[1].to(device), rows=rows)
    sizes = holdings.sizes.tolist()
    config, plan = mode.fitted(config, plan, sizes)
    settings = LocalTraining(
        epochs=config.train.local_epochs,
        batch_size=config.train.batch_size,
        rounds=config.federate.rounds,
        **config.optimizer.model_dump(),
        **(own or {}),
    )
    if config.single_holder and not settings.is_sgd:
        raise ConfigError("One data holder alone steps with SGD. Leave optimizer.name out.")
    if config.evaluate.patience is not None:
        if test is None:
            raise ConfigError(
                "evaluate.patience needs test data, by whose loss it stops. Give test=..., or leave it out."
            )
        stops = (*stops, Patience(tests=config.evaluate.patience))
    trainer: CohortTrainer | PrivateClients
    examples = None
    if plan.examples is not None:
        if training_hooks is not None and training_hooks.changed:
            raise ConfigError("Hooks see single batches, which DP-SGD must not show. Remove them, or choose mode 'dp'.")
        examples = plan.examples.fitted(sizes)
        config = _with_rounds(config, examples)
        trainer = private_clients(config, examples, module, holdings, settings, loss, randomness)
    else:
        check_batches(module, train[0], sizes, config.train.batch_size)
        trainer = cohort_trainer(
            module=module,
            holdings=holdings,
            settings=settings,
            loss=loss,
            form=config.train.form,
            workers=config.train.workers,
            hooks=training_hooks,
        )
    plan = replace(
        plan,
        mechanism=plan.mechanism.fitted(tuple(slot.size for slot in trainer.layout.slots)),
        optimizer=replace(plan.optimizer, trained=sum(slot.size for slot in trainer.layout.trained)),
        injectors=plan.injectors + injectors,
    )
    drowned = outlook.warning(plan, config, parameters=trainer.layout.size, examples=examples)
    return Job(
        config=config,
        title=title,
        dataset=dataset,
        model_name=model_name,
        module=module,
        plan=plan,
        holdings=holdings,
        trainer=trainer,
        evaluator=Evaluator(
            module=module,
            loss=loss,
            device=device,
            workers=trainer.workers,
            hooks=evaluation_hooks,
            metrics=metrics_named(config.evaluate.metrics) | dict(metrics or {}),
            classes=classes,
        ),
        test=None if test is None else (test[0].to(device), test[1].to(device)),
        examples=examples,
        notes=notes,
        names=names,
        remarks=mode.notes(config) + mode.warnings(plan, trainer.layout.size) + (() if drowned is None else (drowned,)),
        advice=drowned or "Lower server.lr or optimizer.lr.",
        classes=classes,
        encoding=encoding,
        outputs=outputs,
        stops=tuple(stops),
    )


def of_one_client(mode: str) -> str:
    """Return why a mode that hides clients' data tells no scores on them."""
    return (
        f"What the model is worth on a single client's data is not to be told in mode {mode!r}, which hides them. Each "
        "client can find out for itself: tacit.load(...).evaluate(own data)."
    )


def _with_rounds(config: Resolved, examples: ExamplePlan) -> Resolved:
    """Return the configuration without more stretches than steps, where one data holder trains alone."""
    if not config.single_holder:
        return config
    rounds = min(config.federate.rounds, examples.steps[0])
    return config.model_copy(update={"federate": config.federate.model_copy(update={"rounds": rounds})})


def private_clients(
    config: Resolved,
    examples: ExamplePlan,
    module: nn.Module,
    holdings: Holdings,
    settings: LocalTraining,
    loss: Loss,
    randomness: Randomness,
) -> PrivateClients:
    """Return clients that train with DP-SGD as ``examples`` says."""
    pairs = list(zip(holdings.sizes.tolist(), examples.batches, strict=True))
    draws = {(size, batch): PoissonBatches(examples=size, expected=batch) for size, batch in set(pairs)}
    kind = PrivateHolder if config.single_holder else PrivateClients
    return kind(
        module=module,
        holdings=holdings,
        settings=settings,
        loss=loss,
        clipping=Clipping(bound=examples.level.clip, rule=examples.level.clipping),
        noise_multiplier=examples.noise_multiplier,
        batches=[draws[pair] for pair in pairs],  # a million clients differ in few sizes
        steps=examples.steps,
        randomness=randomness,
        micro_batch=examples.level.micro_batch,
        workers=config.train.workers or (1 if config.federate.per_round == 1 else None),
    )


def device_of(gpu: int) -> torch.device:
    """Return the device of a GPU's number; -1 is the CPU."""
    if gpu < 0:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise DeviceError(
            f"--gpu {gpu}: no NVIDIA GPU can be used here (torch {torch.__version__} sees none). "
            "Leave --gpu out to train on the CPU, or install a CUDA build of torch."
        )
    if gpu >= torch.cuda.device_count():
        raise DeviceError(f"--gpu {gpu}: expected a number from 0 to {torch.cuda.device_count() - 1}.")
    return torch.device("cuda", gpu)


def _names(data: DataSet, rows: Sequence[NDArray[np.int64]], split: str) -> tuple[str, ...]:
    """Return the natural holders' names, where each client is one of them and they are not too many to read."""
    if data.groups is None or not data.group_names or len(rows) > _MOST_NAMES or split != "natural":
        return ()
    return tuple(data.group_names[int(data.groups[own[0]])] for own in rows)


def features_of(data: Data) -> Features:
    """Return what the configuration's models see of images."""
    return Features(kind=data.features, scales=data.scatter_scales, angles=data.scatter_angles)
