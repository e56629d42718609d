"""Federated learning of MNIST in the clear and encrypted: its curves, and its stages by the run's own clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.config.run_config import from_mapping
from tacit.runs.result import Result, RoundRecord
from tacit.runs.run import run
from tacit.studies.plan import with_values
from tacit_labs.harness.learning import by_round


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to run the epoch."""

    name: str
    key_bits: int | None = None  # None is in the clear
    shared: bool = False  # whether all clients have the private key, as in both reports

    def settings(self) -> dict[str, Any]:
        """Return the mode and its section of the configuration."""
        if self.key_bits is None:
            return {"mode": "plain"}
        section = {"bits": self.key_bits, "keys": "shared" if self.shared else "authority"}
        return {"mode": "paillier", "paillier": section | {"insecure_key_size": self.key_bits < 2048}}


WAYS = (
    Way(name="plain"),
    Way(name="1024 bits, shared key", key_bits=1024, shared=True),
    Way(name="2048 bits, key authority", key_bits=2048),
    Way(name="3072 bits, key authority (default)", key_bits=3072),
)


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The fastest round but the first; seconds are by the clock."""

    way: str
    parameters: int
    clients: int
    rounds: int
    epoch_seconds: float
    train_seconds: float
    sum_added: float  # seconds
    client_bytes: float
    test_accuracy: float | None  # after all rounds
    curve: Mapping[str, list[float | None]]  # by round: accuracy and loss on the test and on the training data

    @property
    def beyond_training(self) -> float:
        """The share of the epoch that is not training."""
        return 1 - self.train_seconds / self.epoch_seconds


@dataclass(frozen=True, kw_only=True)
class EncryptedEpoch(Epoch):
    """The same under encryption."""

    key_bits: int
    shared: bool
    client_encrypts: float  # seconds
    sum_decrypted: float  # seconds


def learn(
    way: Way,
    *,
    rounds: int,
    clients: int,
    workers: int,
    seed: int,
    data: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Epoch:
    """Run rounds and return their seconds by stage, for the fastest round but the first.

    A round has one local epoch, and Tacit's defaults, but for what ``values`` say by dotted keys.
    """
    settings = {
        "seed": seed,
        "data": dict(data or {"name": "mnist"}),
        "federate": {"rounds": rounds, "clients": clients},
        "train": {"local_epochs": 1, "workers": workers},
        "server": {"lr": 1.0},  # the plain average, as in both reports
        "evaluate": {"train": True},
        **way.settings(),
    }
    config = from_mapping(with_values(settings, dict(values or {})))
    return summary(way, run(config, quiet=True), workers=workers)


def summary(way: Way, result: Result, *, workers: int) -> Epoch:
    """Return an epoch's seconds, what one client's encryption took, and what the decryption of a sum took.

    The stage ``protect`` is the clients' clock time over the workers that share it, and ``recover`` one key holder's.
    The first round of several builds tables and compiles, so the fastest of the others counts.
    """
    record = min(result.rounds[1:] or result.rounds, key=epoch)
    own: dict[str, Any] = {
        "way": way.name,
        "parameters": result.parameters,
        "clients": record.clients_replied,
        "rounds": len(result.rounds),
        "epoch_seconds": epoch(record),
        "train_seconds": record.seconds["train"],
        "sum_added": record.seconds["aggregate"],
        "client_bytes": record.bytes_up / record.senders,
        "test_accuracy": result.test_accuracy,
        "curve": by_round(result),
    }
    if way.key_bits is None:
        return Epoch(**own)
    return EncryptedEpoch(
        **own,
        key_bits=way.key_bits,
        shared=way.shared,
        client_encrypts=record.seconds["protect"] * workers / record.senders,
        sum_decrypted=record.seconds["recover"],
    )


def epoch(record: RoundRecord) -> float:
    """Return the clock's seconds of a round without its evaluation."""
    return record.lasted - record.seconds["evaluate"]
