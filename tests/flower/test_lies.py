"""A server that lies in its messages: what a mod was told first holds, and nothing is answered twice."""

from __future__ import annotations

import logging
import threading
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp

from tacit import wire
from tacit.flower import envelope, private_mod
from tacit.parties.hello import GREETING, Numbers, Terms
from tests.flower.common import app

TEXT = '{"dp.clip": 1.0, "dp.noise": 1.0, "mode": "local-dp"}'
BUDGET = '{"dp.epsilon": 8.0, "mode": "local-dp"}'
NUMBERS = Numbers(clients=10, per_round=10, rounds=6)
LENGTH = 2_000


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Return what the node's operator reads."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


def _still() -> ClientApp:
    """Return an app that changes nothing, so that what leaves is the noise."""
    return app(private_mod, change=lambda _: _model())


def _model(length: int = LENGTH) -> ArrayRecord:
    return ArrayRecord({"a": Array(np.zeros(length, np.float32))})


class Node:
    """A real node with the mod, and a server that sends it what it likes."""

    def __init__(self, client_app: ClientApp | None = None, run: dict[str, Any] | None = None, run_id: int = 5) -> None:
        self.app = client_app or _still()
        self.run = run or {}
        self.run_id = run_id
        self.context = self.fresh()

    def fresh(self) -> Context:
        """Return the state as Flower hands it to a message that is processed beside others, or after a restart."""
        return Context(self.run_id, 101, {"partition-id": 0}, RecordDict(), self.run)

    def ask(
        self,
        number: int = 1,
        attempt: int = 0,
        *,
        text: str = TEXT,
        numbers: Numbers | None = NUMBERS,
        weighted_by: str = "num-examples",
        length: int = LENGTH,
        context: Context | None = None,
    ) -> Message:
        turn = wire.Turn(round_number=number, attempt=attempt)
        task = wire.pack_task(wire.Task(turn=turn, model=np.empty(0, np.float32)))
        terms = Terms(settings=text, weighted_by=weighted_by, numbers=numbers).to_record()
        content = RecordDict(
            {
                "arrays": _model(length),
                "config": ConfigRecord({"server-round": number}),
                envelope.FRAME: envelope.record_of(task),
                envelope.CALL: ConfigRecord({"party": 101, **terms}),
            }
        )
        message = Message(content, 101, MessageType.TRAIN)
        return self.app(message, self.context if context is None else context)

    def greet(self, text: str = TEXT) -> Message:
        terms = Terms(settings=text, weighted_by="num-examples").to_record()
        content = RecordDict(
            {envelope.FRAME: envelope.record_of(GREETING), envelope.CALL: ConfigRecord({"party": 101, **terms})}
        )
        return self.app(Message(content, 101, MessageType.TRAIN), self.context)


def _noise(answer: Message) -> float:
    frame = wire.unpack(envelope.frame_of(answer))
    assert frame.kind is wire.Kind.VECTOR, wire.unpack_failure(frame)
    assert list(answer.content) == [envelope.FRAME, "tacit.seconds"]
    assert not answer.content.metric_records["tacit.seconds"], "neither seconds nor metrics leave a node"
    return float(wire.unpack_floats(frame.body).std())


def _refusal(answer: Message) -> wire.Failure:
    frame = wire.unpack(envelope.frame_of(answer))
    assert frame.kind is wire.Kind.FAILURE
    assert len(frame.body) == 1
    assert list(answer.content) == [envelope.FRAME, "tacit.seconds"]
    return wire.unpack_failure(frame)[0]


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ({"text": BUDGET, "numbers": Numbers(clients=9, per_round=9, rounds=100)}, {"rounds": 1}),
        ({}, {"clients": 10**6, "per_round": 10**6}),
        ({}, {"per_round": 1}),
        ({}, {"text": TEXT.replace('noise": 1.0', 'noise": 0.0')}),
        ({}, {"text": '{"mode": "plain"}'}),
        ({}, {"text": TEXT.replace('clip": 1.0', 'clip": 100.0')}),
        ({}, {"text": TEXT[:-1] + ', "federate.minimum_clients": 1}'}),
        ({}, {"text": TEXT.replace(", ", ",  ")}),
        ({}, {"weighted_by": "age"}),
        ({}, {"length": LENGTH + 1}),
    ],
    ids=["rounds", "clients", "cohort", "noise", "mode", "clip", "minimum", "spaces", "weights", "model"],
)
def test_what_was_said_first_holds(first: dict[str, Any], then: dict[str, Any], log: pytest.LogCaptureFixture) -> None:
    node = Node()
    before = _noise(node.ask(1, **first))
    counted = first.get("numbers", NUMBERS)
    counts = {name: then.pop(name) for name in ("clients", "per_round", "rounds") if name in then}
    changed = {**first, **then, "numbers": Numbers(**{**vars(counted), **counts})}
    assert _refusal(node.ask(1 if counts.get("rounds") else 2, **changed)) is wire.Failure.CHANGED
    assert "tacit: CHANGED: The server says" in log.text
    assert _noise(node.ask(3, **first)) == pytest.approx(before, rel=0.1), "and the run goes on as it began"


def test_the_greeting_is_a_first_word_too() -> None:
    node = Node()
    assert wire.unpack(envelope.frame_of(node.greet())).kind is wire.Kind.HELLO
    assert _refusal(node.ask(1, text='{"mode": "plain"}')) is wire.Failure.CHANGED
    assert _refusal(node.greet('{"mode": "plain"}')) is wire.Failure.CHANGED


@pytest.mark.parametrize(
    "counts",
    [{"clients": 10**6, "per_round": 10**6}, {"clients": 10, "per_round": 11}, {"rounds": 1}, {"per_round": 9}],
)
def test_numbers_that_contradict_the_runs_config_are_refused_at_once(counts: dict[str, int]) -> None:
    run = {"tacit.mode": "local-dp", "tacit.dp.noise": 1.0, "tacit.federate.clients": 10}
    run |= {"tacit.federate.rounds": 6, "tacit.federate.per_round": 10}
    text = (
        '{"dp.noise": 1.0, "federate.clients": 10, "federate.per_round": 10, "federate.rounds": 6, "mode": "local-dp"}'
    )
    lies = Numbers(**{**vars(NUMBERS), **counts})
    assert _refusal(Node(run=run).ask(1, text=text, numbers=lies)) is wire.Failure.CHANGED
    assert _noise(Node(run=run, run_id=6).ask(1, text=text)) > 0


def test_the_noise_of_a_share_can_not_be_shrunk_by_counting_more_clients() -> None:
    """The review's case: of ten clients a share of 0.313 of the clip, of a million 0.00098."""
    node = Node()
    text = '{"dp.noise": 1.0, "mode": "paillier", "paillier.dp": true, "paillier.weight_cap": 5}'
    _refusal(node.ask(1, text=text))  # it has no pinned key; the numbers are held to all the same
    more = Numbers(clients=10**6, per_round=10**6, rounds=6)
    assert _refusal(node.ask(2, text=text, numbers=more)) is wire.Failure.CHANGED


def test_a_round_is_answered_once_however_often_it_is_asked_for() -> None:
    node = Node()
    _noise(node.ask(1))
    for _ in range(50):
        assert _refusal(node.ask(1)) is wire.Failure.REPEATED
    _noise(node.ask(2))
    assert _refusal(node.ask(1)) is wire.Failure.REPEATED
    _noise(node.ask(5))
    assert _refusal(node.ask(4)) is wire.Failure.REPEATED, "rounds only rise"


@pytest.mark.parametrize(("number", "attempt"), [(7, 0), (4_000_000_000, 0), (0, 0), (1, 1), (6, 65_535)])
def test_no_round_and_no_try_that_was_not_announced(number: int, attempt: int) -> None:
    assert _refusal(Node().ask(number, attempt)) is wire.Failure.BEYOND


def test_all_that_a_run_can_get_is_one_answer_for_each_round() -> None:
    node = Node()
    asked = [(number, attempt) for number in range(9) for attempt in range(3) for _ in range(3)]
    kinds = [wire.unpack(envelope.frame_of(node.ask(*turn))).kind for turn in asked]
    assert kinds.count(wire.Kind.VECTOR) == NUMBERS.rounds


def test_requests_that_come_at_once_are_no_way_around_it() -> None:
    """Flower hands each of them the state as it was before all, and runs them side by side."""
    node = Node()
    answers: list[Message] = []
    threads = [threading.Thread(target=lambda: answers.append(node.ask(1, context=node.fresh()))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kinds = [wire.unpack(envelope.frame_of(answer)).kind for answer in answers]
    assert sorted(kinds) == [wire.Kind.VECTOR] + [wire.Kind.FAILURE] * 7


def test_a_node_that_was_started_anew_remembers() -> None:
    node = Node()
    _noise(node.ask(3))
    node.context = node.fresh()
    assert _refusal(node.ask(3)) is wire.Failure.REPEATED
    assert _refusal(node.ask(4, text='{"mode": "plain"}')) is wire.Failure.CHANGED
    _noise(node.ask(4))


def test_a_node_that_can_not_remember_does_not_answer(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "file"))
    assert _refusal(Node().ask(1)) is wire.Failure.STORAGE


def test_another_run_is_another_matter() -> None:
    _noise(Node().ask(1))
    _noise(Node(run_id=6).ask(1, text=BUDGET))


def test_a_simulated_node_goes_by_the_same_rules() -> None:
    node = Node()
    node.context.node_config["tacit-simulation"] = True
    _noise(node.ask(1))
    assert _refusal(node.ask(1)) is wire.Failure.REPEATED
    assert _refusal(node.ask(2, text='{"mode": "plain"}')) is wire.Failure.CHANGED
    node.context.run_id = 6  # the next run of a series has the state of the last
    _noise(node.ask(1, text=BUDGET))


def test_the_operator_reads_what_was_announced(log: pytest.LogCaptureFixture) -> None:
    Node().ask(1)
    assert (
        "tacit: this run was announced as mode local-dp, noise multiplier 1, 6 rounds, sums of at least 5 of 10 "
        "clients. Whatever says otherwise later is refused." in log.text
    )


def test_no_word_of_an_app_that_fails_leaves_the_node(log: pytest.LogCaptureFixture) -> None:
    made = ClientApp(mods=[private_mod])

    @made.train()
    def train(message: Message, context: Context) -> Message:
        raise ValueError("patient 17: blood pressure 300")

    answer = Node(made).ask(1)
    assert answer.has_error()
    assert "patient" not in f"{answer.error.reason}"
    assert "patient 17: blood pressure 300" in log.text


def test_no_word_of_an_error_that_an_app_answers_leaves_the_node() -> None:
    from flwr.app import Error

    made = ClientApp(mods=[private_mod])

    @made.train()
    def train(message: Message, context: Context) -> Message:
        return Message(Error(code=0, reason="patient 17"), reply_to=message)

    assert "patient" not in f"{Node(made).ask(1).error.reason}"


def test_no_weight_of_a_client_is_in_its_refusal(log: pytest.LogCaptureFixture) -> None:
    answer = Node(app(private_mod, change=lambda _: _model())).ask(
        1, text='{"mode": "plain"}', weighted_by="train_loss"
    )
    assert _refusal(answer) is wire.Failure.APP
    assert "the app's metrics have [0.0]" in log.text
