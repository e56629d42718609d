"""What each adversary gets of one client in a round: the round is played, and what passes by is kept.

A few clients hold a few examples each and take one step of SGD, by the mode's own plan, mechanism, protocol and key
holders. What comes back is what an attack may start from: a client's vector as the server reads it, the bytes of one
that it can't read, the opened sum, the released update.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from tacit import wire
from tacit.config import overrides
from tacit.config.run_config import RunConfig
from tacit.federated.plan import Plan
from tacit.federated.round import broadcast, release, sum_flow
from tacit.flow import Engine, Frames, Gather, InProcessEngine, Stopwatch, drive
from tacit.mechanisms.gaussian import GaussianMechanism, LocalGaussianMechanism
from tacit.modes.catalogue import mode_of, plan_of, resolve
from tacit.randomness import Randomness
from tacit.runs import job as jobs
from tacit.runs.connection import InProcess, Watch
from tacit.tasks.data import Examples

VICTIM = 0
_CLIENTS = 8
_RATE = 0.1


@dataclass(frozen=True, kw_only=True)
class View:
    """What somebody has of the victim's update.

    Attributes:
        mode: the protection.
        who: whose view it is.
        sees: what that is, in words.
        vector: the same as numbers in the order of the model's, of whatever scale; the update's sign is kept.
    """

    mode: str
    who: str
    sees: str
    vector: NDArray[np.float64]


def views(mode: str, *, data: Examples, module: nn.Module, batch: int, epsilon: float, seed: int) -> list[View]:
    """Play a round of ``mode`` in which client 0 holds the first ``batch`` examples, and return who has what of it.

    Args:
        mode: a mode's name.
        data: the examples, ``batch`` of them for every client.
        module: the model that everybody starts from.
        batch: how many examples a client holds, and its one step has.
        epsilon: the budget of the one round, where the mode has noise.
        seed: of everything that is drawn.
    """
    job = _job(mode, data, module, batch, epsilon, seed)
    randomness = Randomness.of(seed=seed)
    watch = Watch(stopwatch=Stopwatch(), on_reply=lambda: None, note=lambda _: None)
    with ExitStack() as stack:
        stack.callback(job.close)
        engine = stack.enter_context(InProcess(job).open(job, randomness, watch))
        heard = _Heard(engine)
        clients = range(len(job.holdings.rows))
        plan = replace(job.plan, protocol=drive(job.plan.protocol.setup(clients), engine))
        task = broadcast(plan, plan.mechanism, job.trainer.layout.read(module).numpy(), wire.Turn(round_number=1))
        total = drive(sum_flow(plan, plan.mechanism, clients, task), heard)
        state = plan.optimizer.start(job.trainer.layout.size)
        moved = release(plan, plan.mechanism, total, task, state, randomness).update.astype(np.float64)
        own = None if mode_of(mode).hidden else _alone(plan, engine, task)
    size = len(moved)
    if own is None:
        word = "ciphertext" if mode_of(mode).encrypted else "masked vector"
        opened = f"the opened sum of {len(clients)} clients"
        views = [View(mode=mode, who="the server", sees=f"a client's {word}", vector=_as_numbers(heard.reply, size))]
        if mode_of(mode).encrypted:
            views.append(View(mode=mode, who="the key authority", sees=opened, vector=moved))
        return [*views, View(mode=mode, who="the server", sees=opened, vector=moved)]
    found = [View(mode=mode, who="the server", sees=_words(plan), vector=own[:size])]
    if mode_of(mode).central:
        told = f"the released mean of {len(clients)} clients, with noise"
        found.append(View(mode=mode, who="whoever has the models", sees=told, vector=moved))
    return found


def _job(mode: str, data: Examples, module: nn.Module, batch: int, epsilon: float, seed: int) -> jobs.Job:
    settings: dict[str, Any] = {
        "mode": mode,
        "seed": seed,
        "federate": {"clients": _CLIENTS, "rounds": 1},
        "train": {"workers": 1},
        "optimizer": {"lr": _RATE, "momentum": 0.0, "final": 1.0},
        "server": {"lr": 1.0},
    }
    kind = mode_of(mode)
    overrides.put(settings, kind.batch_size, batch)
    if kind.budget and kind.noise_if is None:
        overrides.put(settings, f"{kind.budget[-1]}.epsilon", epsilon)
    for key, value in kind.replayed.items():
        overrides.put(settings, key, value)
    config = resolve(RunConfig(**settings))
    rows = [np.arange(batch) + batch * client for client in range(_CLIENTS)]
    return jobs.assemble(
        config=config,
        title="",
        dataset="",
        model_name="",
        module=module,
        plan=plan_of(config, _CLIENTS),
        train=(torch.from_numpy(data.features), torch.from_numpy(data.labels)),
        rows=rows,
        test=None,
        device=torch.device("cpu"),
        randomness=Randomness.of(seed=seed),
    )


class _Heard:
    """An engine that keeps the longest reply of the victim."""

    name = InProcessEngine.name

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.reply = b""

    def exchange(self, requests: Frames) -> Frames:
        """Pass requests on, and keep what the victim answered."""
        if isinstance(requests, Gather):
            receive = requests.receive

            def kept(client: int, reply: bytes) -> None:
                self._keep(client, reply)
                receive(client, reply)

            replies = self._engine.exchange(Gather(requests, kept))
        else:
            replies = self._engine.exchange(requests)
        for client, reply in replies.items():
            self._keep(client, reply)
        return replies

    def _keep(self, client: int, reply: bytes) -> None:
        if client == VICTIM and len(reply) > len(self.reply):
            self.reply = bytes(reply)


def _alone(plan: Plan, engine: Engine, task: wire.Task) -> NDArray[np.float64]:
    """Return the victim's vector as the server reads it: the sum of the victim alone, by the same protocol."""
    changed: Any = replace(plan.protocol, minimum_clients=1)  # type: ignore[type-var]  # protocols are dataclasses
    return drive(sum_flow(replace(plan, protocol=changed), plan.mechanism, [VICTIM], task), engine).vector


def _as_numbers(reply: bytes, size: int) -> NDArray[np.float64]:
    """Return bytes that nobody can read as so many numbers: all there is to start from."""
    numbers = np.frombuffer(reply[-(len(reply) // 4) * 4 :], np.uint8).astype(np.float64) - 127.5
    return np.resize(numbers, size)


def _words(plan: Plan) -> str:
    match plan.mechanism:
        case GaussianMechanism():
            return "a client's clipped update, before it adds the noise: in this mode the server is trusted"
        case LocalGaussianMechanism():
            return "a client's clipped update with the client's own noise"
    return plan.guarantee.server.replace("every client's", "a client's").replace("of every client", "of a client")
