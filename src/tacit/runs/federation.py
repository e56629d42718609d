"""The Python way in: your own module and your own data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit.config.resolved import given
from tacit.config.run_config import RunConfig
from tacit.config.sections import Federate
from tacit.errors import ConfigError, DataError
from tacit.federated.plan import Injector
from tacit.modes.catalogue import plan_of, resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs import logged
from tacit.runs.book import Book
from tacit.runs.observer import Observer, watching
from tacit.runs.result import Result
from tacit.runs.run import GIVEN, execute
from tacit.training.examples import UserData, tensors
from tacit.training.hooks import Hook, Hooks
from tacit.training.settings import Loss, loss_named


class Federation:
    """A model and the data of each client.

    ``clients`` are :class:`torch.utils.data.Dataset` objects or pairs of arrays (features, labels), one per client;
    they are brought into memory once. :meth:`fit` trains ``model`` in place.

    >>> federation = Federation(
    ...     model=nn.Linear(2, 2),
    ...     clients=[(np.eye(2), np.array([0, 1])), (np.eye(2), np.array([0, 1]))],
    ...     seed=1,
    ... )
    >>> len(federation.fit(rounds=2, quiet=True).rounds)
    2
    """

    def __init__(
        self,
        *,
        model: nn.Module,
        clients: Sequence[UserData],
        test: UserData | None = None,
        loss: str | Loss = "cross-entropy",
        **settings: Any,
    ) -> None:
        """Collect the parts.

        Args:
            model: the module to train.
            clients: each client's examples.
            test: examples the server tests on after each round.
            loss: ``cross-entropy``, ``squared-error``, or a function from outputs and labels to one loss per example.
            **settings: sections and keys of the configuration, such as ``optimizer={"lr": 0.1}`` or ``seed=1``.
        """
        self._model = model
        self._settings = settings
        self._loss = loss_named(loss)
        self._parts = [tensors(data, f"client {number}") for number, data in enumerate(_listed(clients))]
        if not self._parts:
            raise ConfigError("Expected at least one client, got none.")
        self._test = None if test is None else tensors(test, "the test set")
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
        self._book = Book()

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
    ) -> Result:
        """Train for ``rounds`` and return the result; the model holds the new weights afterwards.

        A line per round says how far it is, unless ``quiet``; an ``observer`` is told instead.

        Another fit goes on with the same model and the same clients' data, so its releases are charged on top of those
        of the fits before, also of one that failed: epsilon and budgets are those of all fits together. A budget given
        as ``dp.epsilon`` is all spent by the first; for several fits give ``dp.noise`` and ``dp.max_epsilon``.
        """
        settings = dict(self._settings)
        settings["federate"] = self._federate(settings.get("federate")) | {"rounds": rounds}
        if out is not None:
            settings["out"] = out
        config = RunConfig(**settings)
        logged.check(config)
        randomness = Randomness.of(seed=config.seed)
        before = self._book.releases
        if self._book.fits:  # a seed gives each fit draws of its own
            randomness = randomness.within("fit", self._book.fits)
        try:
            return execute(
                lambda: self._job(config, randomness),
                randomness,
                config.out,
                watching(observer, quiet=quiet),
                force=force,
                book=self._book,
            )
        finally:
            self._book.fits += self._book.releases > before

    def _federate(self, given: Any) -> dict[str, Any]:
        """Return the federation's settings; how many clients there are is not a matter of choice."""
        if not (given is None or isinstance(given, Mapping | Federate)):
            raise ConfigError(f"federate={given!r} does not work: expected settings such as {{'per_round': 2}}.")
        settings = dict(given or {}) if not isinstance(given, Federate) else given.model_dump(exclude_unset=True)
        clients = settings.setdefault("clients", len(self._parts))
        if clients not in (None, len(self._parts)):
            raise ConfigError(
                f"federate.clients={clients!r} does not work: {len(self._parts)} clients were given. Leave it out."
            )
        return settings

    def _job(self, config: RunConfig, randomness: Randomness) -> jobs.Job:
        sizes = [len(part[1]) for part in self._parts]
        ends = np.cumsum(sizes)
        name = type(self._model).__name__
        resolved = given(resolve(config), model=name)
        return jobs.assemble(
            config=resolved,
            title=f"{name}, {len(self._parts)} clients",
            dataset=GIVEN,
            model_name=name,
            module=self._model,
            plan=plan_of(resolved, len(self._parts)),
            train=(
                torch.cat([part[0] for part in self._parts]),
                torch.cat([part[1] for part in self._parts]),
            ),
            rows=np.split(np.arange(ends[-1]), ends[:-1]),
            test=self._test,
            device=jobs.device_of(config.gpu),
            randomness=randomness,
            loss=self._loss,
            training_hooks=self.training_hooks,
            evaluation_hooks=self.evaluation_hooks,
            injectors=tuple(self._injectors),
        )


def _listed(clients: Any) -> list[Any]:
    """Return the clients' data one by one."""
    if isinstance(clients, str | bytes | Mapping) or hasattr(clients, "to_numpy") or not isinstance(clients, Iterable):
        raise ConfigError(
            f"Expected clients as a list with the examples of each, such as [(features, labels), ...], got "
            f"{type(clients).__name__}."
        )
    return list(clients)
