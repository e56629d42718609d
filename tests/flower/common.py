"""A protected app in memory: Flower's own strategies and ClientApp, and a Grid whose nodes are called at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from tacit.flower import private_mod
from tests.flower.grid import FakeGrid

Weights = NDArray[np.float32]
FEW_BITS: dict[str, Any] = {"bits": 512, "insecure_key_size": True}


def start() -> ArrayRecord:
    """Return a model with a matrix, a bias in float64 and a counter of whole numbers."""
    return ArrayRecord(
        {
            "weight": Array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)),
            "bias": Array(np.array([0.5, -0.25])),
            "seen": Array(np.array(7, dtype=np.int64)),
        }
    )


def shift(number: int, round_number: int) -> float:
    """Return what client ``number`` adds to every parameter; no two clients or rounds are alike."""
    return 0.01 * (number + 1) + 0.001 * round_number


def examples(number: int) -> int:
    return 10 * (number + 1)


def app(*mods: Any, change: Callable[[ArrayRecord], ArrayRecord] | None = None) -> ClientApp:
    """Return a plain Flower app: its clients move all parameters by a known amount."""
    made = ClientApp(mods=list(mods))

    @made.train()
    def train(message: Message, context: Context) -> Message:
        assert list(message.content) == ["arrays", "config"], "the app sees its own records only"
        record = message.content.array_records["arrays"]
        round_number = message.content.config_records["config"]["server-round"]
        assert isinstance(round_number, int)
        number = int(context.node_config.get("partition-id", 0))
        moved = {}
        for name, array in record.items():
            values = array.numpy()
            step = 1 if values.dtype.kind == "i" else shift(number, round_number)
            moved[name] = Array(np.asarray((values + step).astype(values.dtype)))
        trained = ArrayRecord(moved)
        metrics = MetricRecord({"num-examples": examples(number), "train_loss": 0.1 * number})
        answer = RecordDict({"arrays": trained if change is None else change(trained), "metrics": metrics})
        return Message(answer, reply_to=message)

    @made.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        number = int(context.node_config.get("partition-id", 0))
        return Message(
            RecordDict({"metrics": MetricRecord({"num-examples": 1, "accuracy": 0.5 + 0.1 * number})}),
            reply_to=message,
        )

    return made


@dataclass
class Federation(FakeGrid):
    """A Grid with nodes that run apps; what each node was sent and answered is kept."""

    nodes: dict[int, Any] = field(default_factory=dict)
    contexts: dict[int, Context] = field(default_factory=dict)
    answers: list[Message] = field(default_factory=list)
    sent: list[Message] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    tamper: Callable[[Message], Message] | None = None

    def join(self, node: int, client_app: ClientApp, run: dict[str, Any] | None = None, **config: Any) -> None:
        settings = {name.replace("_", "-"): value for name, value in config.items()}
        context = self.contexts[node] = Context(5, node, settings, RecordDict(), run or {})

        def respond(message: Message) -> list[Message]:
            if node in self.dead:
                return [Message(Error(code=8, reason="the app crashed"), reply_to=message)]
            self.sent.append(message)
            try:
                answer = client_app(message, context)
            except Exception as error:  # as Flower does
                answer = Message(Error(code=2, reason=repr(error)), reply_to=message)
            answer = answer if self.tamper is None else self.tamper(answer)
            self.answers.append(answer)
            return [answer]

        self.nodes[node] = respond

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return self.pull_messages(self.push_messages(messages))


def federation(
    clients: int = 4, *, run: dict[str, Any] | None = None, client_app: ClientApp | None = None, **config: Any
) -> Any:
    """Return a Grid of so many nodes with the mod; by default they take part in simulations."""
    made = Federation()
    settings = {"tacit_simulation": True, **config}
    for number in range(clients):
        made.join(101 + number, client_app or app(private_mod), run, partition_id=number, **settings)
    return made


def quiet() -> FedAvg:
    """Return FedAvg that does not evaluate."""
    return FedAvg(fraction_evaluate=0.0)


def mean_shift(clients: Iterable[int], round_number: int, *, weighted: bool = True) -> float:
    numbers = list(clients)
    weights = [examples(number) if weighted else 1 for number in numbers]
    return float(np.average([shift(number, round_number) for number in numbers], weights=weights))


def floats(record: ArrayRecord | None) -> NDArray[np.float64]:
    assert record is not None
    return np.concatenate([record[name].numpy().astype(np.float64).ravel() for name in ("weight", "bias")])
