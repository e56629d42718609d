"""A cohort of clients: who holds which examples, how each of them trains and in which batches, over all cores.

Describe the clients' data (:class:`Holdings`) and local SGD (:class:`LocalTraining`), let
:func:`tacit.training.forms.cohort_trainer` choose the fastest form of training that the model allows, and call
:meth:`CohortTrainer.train` once per round. Every form follows one table of batches (:func:`schedule`), so that a
client's result does not depend on who trains beside it.

Nothing here costs time in proportion to the population: a round touches the rows of its cohort only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from tacit.errors import ConfigError, DataError
from tacit.training import cpu
from tacit.training.parameters import Parameters
from tacit.vectors import Vector

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs (n, ...), labels (n, ...) -> one loss per example, (n,)
Finish = Callable[[int, Vector, float], None]  # client, update, mean loss

_EXAMPLES_PER_STEP = {"cpu": 320, "cuda": 4_096}  # where a larger chunk stops paying
_MOST_CLIENTS = {"cpu": 16, "cuda": 1_024}
_SIMILAR = 0.75  # clients whose numbers of steps differ by more don't share a chunk: the shorter would idle
_ORDER, _DROPOUT = 0, 1  # what a client's key is used for
_LOW = 0xFFFFFFFF
_ONE = np.array(1, np.uint64)  # arrays wrap around silently, scalars warn
_GOLDEN = np.array(0x9E3779B97F4A7C15, np.uint64)


@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    r"""Local SGD, with the proximal term of FedProx (Li et al. 2020).

    A client minimises :math:`F_k(w) + \frac{\mu}{2} \lVert w - w_{global} \rVert^2`. In each step the gradient is
    clipped (``grad_clip``, an L2 norm over the whole model), weight decay is added, and momentum is applied as in
    :class:`torch.optim.SGD`. The rate falls in a line from ``lr`` in the first of T rounds to ``final * lr`` in the
    last, and is multiplied by ``decay`` after each round. Clients that end in smaller steps end closer together, and
    their average is better.
    """

    epochs: int
    batch_size: int
    lr: float
    momentum: float = 0.0
    weight_decay: float = 0.0
    final: float = 1.0
    rounds: int = 1  # T
    decay: float = 1.0
    grad_clip: float | None = None
    mu: float = 0.0

    def rate(self, round_number: int) -> float:
        """Return the learning rate of a round; rounds count from 1."""
        share = (round_number - 1) / max(self.rounds - 1, 1)
        return float(self.lr * (1.0 - (1.0 - self.final) * share) * self.decay ** (round_number - 1))


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of each example; ``outputs`` are logits."""
    return F.cross_entropy(outputs, labels, reduction="none")


def squared_error(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the mean squared error of each example."""
    errors = F.mse_loss(outputs, labels.to(outputs.dtype).view_as(outputs), reduction="none")
    return errors.flatten(1).mean(1) if errors.dim() > 1 else errors


LOSSES: Mapping[str, Loss] = {"cross-entropy": cross_entropy, "squared-error": squared_error}


def loss_named(loss: str | Loss) -> Loss:
    """Return the loss of this name, or the function that was given."""
    if callable(loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ConfigError(f"Unknown loss {loss!r}. Known: {', '.join(LOSSES)}, or a function of your own.")
    return LOSSES[loss]


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """The examples of all clients, on the device that trains."""

    features: Tensor
    labels: Tensor
    rows: Sequence[NDArray[np.int64]]

    def __post_init__(self) -> None:
        for client, rows in enumerate(self.rows):
            if len(rows) == 0:
                raise DataError(
                    f"Client {client} holds no example. Use fewer clients or another split, "
                    "such as data.split=iid, or leave empty clients out."
                )

    def sizes(self, clients: Sequence[int]) -> NDArray[np.int64]:
        """Return how many examples each of ``clients`` holds."""
        return np.array([len(self.rows[client]) for client in clients], np.int64)

    def padded_rows(self, clients: Sequence[int], longest: int) -> Tensor:
        """Return the rows of ``clients``, one client per line, padded with the client's own first row.

        Padding has no weight in a loss, and yet a gradient of 0 times infinity is NaN: with somebody else's example for
        padding, what that holds could spoil a client's update.
        """
        table = np.empty((len(clients), longest), np.int64)
        for line, client in enumerate(clients):
            own = self.rows[client]
            table[line, : len(own)], table[line, len(own) :] = own, own[0]
        return torch.from_numpy(table).to(self.features.device)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of training K clients."""

    updates: NDArray[np.float32]  # (K, size): the new model minus the one sent
    losses: NDArray[np.float64]  # (K,): the mean loss over the client's examples and epochs


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Clients that train together in a round."""

    clients: Sequence[int]
    keys: NDArray[np.int64]  # one per client: its batches and dropout masks in this round
    rate: float
    round_number: int

    def filled(self, multiple: int) -> Chunk:
        """Return the chunk filled up to a multiple with copies of its last client, whose results are to be left out."""
        empty = -len(self.clients) % multiple
        clients = [*self.clients, *[self.clients[-1]] * empty]
        return replace(self, clients=clients, keys=np.concatenate([self.keys, self.keys[-1:].repeat(empty)]))


class ChunkTrainer(Protocol):
    """A form of training."""

    def train(self, model: Tensor, holdings: Holdings, chunk: Chunk) -> Trained:
        """Train the clients of a chunk from ``model`` and return their updates."""
        ...


class CohortTrainer:
    """Trains many clients at once; made by :func:`tacit.training.forms.cohort_trainer`.

    Attributes:
        form: the form that was chosen.
        reason: why not a faster one; empty where the fastest was taken.
        layout: the model's vector.
        workers: how many chunks train at the same time.
    """

    def __init__(
        self,
        *,
        form: str,
        reason: str,
        layout: Parameters,
        trainers: Sequence[ChunkTrainer],
        holdings: Holdings,
        settings: LocalTraining,
        lanes: int = 0,
    ) -> None:
        """Start the workers.

        Args:
            form: the name of the form.
            reason: why not a faster one.
            layout: the model's vector.
            trainers: one for each chunk that may train at the same time.
            holdings: who holds which examples.
            settings: local SGD.
            lanes: how many clients fill one chunk exactly, where their number matters; 0 elsewhere.
        """
        self.form = form
        self.reason = reason
        self.layout = layout
        self.workers = len(trainers)
        self._idle: SimpleQueue[ChunkTrainer] = SimpleQueue()
        for trainer in trainers:
            self._idle.put(trainer)
        self._holdings = holdings
        self._settings = settings
        self._lanes = lanes
        self._device = holdings.features.device
        self._pool = ThreadPoolExecutor(self.workers, "tacit-train", initializer=self._start_worker)
        self._threads_before = torch.get_num_threads()

    def train(
        self,
        model: Vector,
        clients: Sequence[int],
        keys: NDArray[np.int64],
        round_number: int,
        finish: Finish,
    ) -> None:
        """Train ``clients`` from ``model``; ``finish`` is called for each, in the thread that trained it.

        Args:
            model: the global model.
            clients: whom to train.
            keys: one 62-bit key per client: its batches and dropout masks in this round.
            round_number: the round, for the learning rate.
            finish: takes a client's update.
        """
        start = torch.from_numpy(np.array(model)).to(self._device)
        rate = self._settings.rate(round_number)

        def work(places: Sequence[int]) -> None:
            names = [clients[place] for place in places]
            chunk = Chunk(clients=names, keys=keys[list(places)], rate=rate, round_number=round_number)
            trainer = self._idle.get()
            try:
                trained = trainer.train(start, self._holdings, chunk)
            finally:
                self._idle.put(trainer)
            for line, client in enumerate(names):
                finish(client, trained.updates[line], float(trained.losses[line]))

        list(self._pool.map(work, self._chunks(clients)))

    def close(self) -> None:
        """Stop the workers and give torch its threads back."""
        self._pool.shutdown()
        torch.set_num_threads(self._threads_before)

    def _chunks(self, clients: Sequence[int]) -> Iterator[list[int]]:
        """Yield positions in ``clients``, those of similar size together, the largest first."""
        steps = -(-self._holdings.sizes(clients) // self._settings.batch_size)
        kind = "cuda" if self._device.type == "cuda" else "cpu"
        batch = self._settings.batch_size
        limit = min(_MOST_CLIENTS[kind], max(1, _EXAMPLES_PER_STEP[kind] // batch))
        rounds = -(-len(clients) // (limit * self.workers))
        size = -(-len(clients) // (rounds * self.workers))  # as many chunks as keep all workers busy to the end
        if self._lanes and len(clients) >= self._lanes * self.workers:
            size = self._lanes
        chunk: list[int] = []
        for position in np.argsort(-steps, kind="stable").tolist():
            if chunk and (len(chunk) == size or steps[position] < _SIMILAR * steps[chunk[0]]):
                yield chunk
                chunk = []
            chunk.append(position)
        yield chunk

    def _start_worker(self) -> None:
        if self._device.type == "cpu":
            cpu.keep_pages()
            if self.workers > 1:
                torch.set_num_threads(1)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """S steps of K clients in batches of B.

    A client with fewer examples than the largest has steps with fewer than B, or no, examples: ``counts`` says how
    many of the B rows are real; the others are padding.
    """

    rows: Tensor  # (S, K, B)
    keys: Tensor  # (S, K)
    counts: NDArray[np.int64]  # (S, K)
    steps_per_epoch: int

    @property
    def ragged(self) -> bool:
        """Whether any batch has padding."""
        return bool((self.counts != self.rows.shape[2]).any())


def schedule(
    holdings: Holdings,
    clients: Sequence[int],
    keys: NDArray[np.int64],
    *,
    epochs: int,
    batch_size: int,
) -> Schedule:
    """Lay out ``epochs`` passes, each in a new random order, for ``clients`` with their keys of the round."""
    device = holdings.features.device
    sizes = holdings.sizes(clients)
    width = min(batch_size, int(sizes.max()))
    steps = -(-int(sizes.max()) // width)
    longest = steps * width
    table = holdings.padded_rows(clients, longest)
    size_tensor = torch.from_numpy(sizes).to(device)
    passes = []
    for epoch in range(epochs):
        order_keys = torch.from_numpy(derive_keys(keys, _ORDER, epoch)).to(device)
        shuffled = table.gather(1, shuffled_positions(order_keys, size_tensor, longest))
        passes.append(shuffled.view(len(clients), steps, width).transpose(0, 1))
    numbers = np.arange(epochs * steps)[:, None]
    starts = (numbers % steps) * width
    return Schedule(
        rows=torch.cat(passes).contiguous(),
        keys=torch.from_numpy(derive_keys(keys, _DROPOUT, numbers // steps, numbers % steps)).to(device),
        counts=np.clip(sizes[None, :] - starts, 0, width),
        steps_per_epoch=steps,
    )


def random_bits(key: Tensor, index: Tensor) -> Tensor:
    """Return 32 random bits (as int64) for each pair of ``key`` and ``index`` (int64, broadcast together).

    A generator with a state gives different numbers on a CPU and on a GPU, and its numbers depend on how many were
    drawn before. A counter-based one (Salmon et al. 2011) has no state: the order of a client's batches and its dropout
    masks are functions of the client's key for the round, so that training gives the same result one client at a time,
    a hundred at once, over any number of workers, and on a GPU. It is for training only; nothing that protects anybody
    comes from here. Two rounds of MurmurHash3's finaliser, the halves of the key entering before each.

    >>> random_bits(torch.tensor(5), torch.arange(3)).tolist() == random_bits(torch.tensor(5), torch.arange(3)).tolist()
    True
    """
    mixed = _mix((index + (key & _LOW)) & _LOW)
    return _mix(mixed ^ ((key >> 32) & _LOW))


def _mix(x: Tensor) -> Tensor:
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


def derive_keys(keys: NDArray[np.int64], *path: int | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a new 62-bit key for every key and the given path (SplitMix64's finaliser, once per step).

    >>> derive_keys(np.array([1, 2]), np.arange(3)[:, None], 7).shape
    (3, 2)
    """
    state = np.asarray(keys).astype(np.uint64)
    for step in path:
        state = state + (np.asarray(step).astype(np.uint64) + _ONE) * _GOLDEN
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state = state ^ (state >> np.uint64(31))
    derived: NDArray[np.int64] = (state >> np.uint64(2)).astype(np.int64)
    return derived


def keep_mask(key: Tensor, index: Tensor, drop_probability: float) -> Tensor:
    """Return the dropout mask: True where an element stays."""
    return random_bits(key, index) >= round(drop_probability * 2**32)


def shuffled_positions(key: Tensor, sizes: Tensor, longest: int) -> Tensor:
    """Return, for each client, its positions in random order, and then the padding.

    Args:
        key: one key per client, shape (K,).
        sizes: how many examples each client has, shape (K,).
        longest: the width of the result; a client with fewer examples has its padding at the end.
    """
    positions = torch.arange(longest, device=key.device)
    drawn = random_bits(key[:, None], positions[None, :])
    drawn = torch.where(positions[None, :] < sizes[:, None], drawn, 1 << 33)
    return drawn.sort(dim=1, stable=True).indices
