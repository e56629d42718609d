"""Strategy and mod find out on the first message whether they belong together."""

from __future__ import annotations

import logging
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.server import ServerConfig
from flwr.serverapp.strategy import FedAvg

import tacit
from tacit import wire
from tacit.errors import ClientError, ConfigError, DropoutError, RunError, WireError
from tacit.flower import Private, envelope, private_mod
from tacit.parties.hello import Introduction, Numbers, Terms
from tests.flower.common import FEW_BITS, app, federation, floats, quiet, start


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """Return what is in Flower's log: here the server's and the nodes' own."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    caplog.set_level(logging.INFO, "flwr")
    return caplog


DP: dict[str, Any] = {"mode": "dp", "dp": {"noise": 1.0}}
SAME: dict[str, Any] = {"tacit.mode": "dp", "tacit.dp.noise": 1}


def test_a_client_without_the_mod_is_found_out_before_it_sends_anything(log: pytest.LogCaptureFixture) -> None:
    grid = federation()
    grid.join(103, app(), partition_id=2)
    with pytest.raises(
        RunError, match=r"tacit\.flower\.Private, and node 103 answers without tacit\.flower\.private_mod"
    ):
        Private(quiet(), **DP).start(grid, start(), num_rounds=1)
    for answer in grid.answers:
        assert answer.has_error() or list(answer.content) == [envelope.FRAME, "tacit.seconds"]
    assert not any("arrays" in message.content for message in grid.sent), "no task was sent"
    assert "tacit: the run stops: The server's strategy is" in log.text


def test_a_forgotten_mod_is_one_message(log: pytest.LogCaptureFixture) -> None:
    """Apps raise when they are greeted, and Flower's tracebacks of that are in the server's log where it simulates."""
    grid = federation(client_app=app())

    def as_flower(message: Message) -> Message:
        logging.getLogger("flwr").error("Traceback (most recent call last): ...")
        return message

    grid.tamper = as_flower
    with pytest.raises(RunError, match=r"node 101 answers without .*, and 3 more likewise\. Make its app") as caught:
        Private(quiet(), **DP).start(grid, start(), num_rounds=1)
    assert [record.levelname for record in log.records].count("ERROR") == 1
    assert "Traceback" not in log.text
    assert "dropped out" not in log.text
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2  # this test, and start
    assert caught.value.__cause__ is None


def test_what_else_nodes_answer_to_a_greeting_stays_in_the_log(log: pytest.LogCaptureFixture) -> None:
    grid = federation()
    grid.dead = {102}
    Private(quiet(), mode="plain", federate={"minimum_clients": 2}).start(grid, start(), num_rounds=1)
    assert "(node 102) has dropped out: the app crashed" in log.text


def test_the_log_says_that_train_metrics_are_withheld(log: pytest.LogCaptureFixture) -> None:
    result = Private(quiet(), mode="plain").start(federation(), start(), num_rounds=1)
    assert not result.train_metrics_clientapp[1]
    assert "(losses, numbers of examples) is withheld" in log.text


def _classic_strategy() -> object:
    from flwr.server.strategy import FedAvg as Classic

    return Classic()


def server_fn(context: Context) -> None: ...


@pytest.mark.parametrize(
    "part",
    [_classic_strategy(), NumPyClient(), NumPyClient, ServerConfig(), server_fn],
    ids=["strategy", "client", "client class", "server config", "server_fn"],
)
def test_a_classic_app_is_told_how_to_move(part: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"classic app.*@app\.main\(\).*private_mod.*@app\.train\(\).*docs/flower\.md"
    ):
        Private(part, **DP)


def test_classic_clients_and_servers_are_told_too(log: pytest.LogCaptureFixture) -> None:
    grid = federation(client_app=ClientApp(client_fn=lambda _: NumPyClient().to_client(), mods=[private_mod]))
    with pytest.raises(DropoutError):
        Private(quiet(), mode="plain", federate={"retries": 0}).start(grid, start(), num_rounds=1)
    assert "this node's app is a classic one" in log.text
    log.clear()
    message = Message(RecordDict({"fitins.parameters": ArrayRecord()}), 101, "train")
    answer = private_mod(message, grid.contexts[101], lambda *_: pytest.fail("nothing is trained"))
    assert "The server's app is a classic one" in str(answer.error.reason)


def test_a_client_that_answers_a_greeting_with_something_else() -> None:
    grid = federation()

    def other(answer: Message) -> Message:
        answer.content = _record("other")
        return answer

    grid.tamper = other
    with pytest.raises(RunError, match=r"node 101.*got other.*private_mod"):
        Private(quiet(), **DP).start(grid, start(), num_rounds=1)


def _record(name: str) -> RecordDict:
    return RecordDict({name: ArrayRecord({"a": Array("float32", (1,), "numpy.ndarray", b"")})})


def test_a_client_that_loses_its_mod_later_is_named() -> None:
    grid = federation()
    wrapped = Private(quiet(), federate={"rounds": 1}, **DP)
    messages = list(wrapped.configure_train(1, start(), ConfigRecord(), grid))
    replies = list(grid.send_and_receive(messages))
    replies[2] = Message(_record("arrays"), reply_to=messages[2])
    node = messages[2].metadata.dst_node_id
    with pytest.raises(RunError, match=rf"node {node} answers without .*it sent arrays"):
        wrapped.aggregate_train(1, replies)


def test_the_mod_without_the_strategy_neither_trains_nor_sends() -> None:
    grid = federation()
    result = FedAvg(fraction_evaluate=0).start(grid, start(), num_rounds=1)
    assert not result.arrays
    assert len(grid.answers) == 4
    for answer in grid.answers:
        assert "has tacit.flower.private_mod" in answer.error.reason
        assert "does not come from tacit.flower.Private" in answer.error.reason


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (SAME | {"tacit.dp.noise": 2.5}, r"dp\.noise: the server has 1\.0, this node 2\.5.*Private.*private_mod"),
        (SAME | {"tacit.mode": "local-dp"}, "mode: the server has 'dp', this node 'local-dp'"),
        ({"tacit.mode": "dp"}, r"dp\.noise: the server has 1\.0, this node None"),
        (SAME | {"tacit.seed": 4}, "seed: the server has None, this node 4"),
        ({"tacit.dp.noise": 1}, r"no tacit\.mode"),
        (SAME | {"tacit.dp.nois": 1}, r"Unknown key 'dp\.nois'"),
    ],
)
def test_settings_that_differ_are_named_with_both_sides_in_the_nodes_log(
    run: dict[str, Any], message: str, log: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RunError, match=r"Node 10\d refused: its settings differ"):
        Private(quiet(), **DP).start(federation(run=run), start(), num_rounds=1)
    assert re.search(rf"tacit: SETTINGS: .*{message}", log.text)


@pytest.mark.parametrize("run", [{}, SAME, SAME | {"lr": 0.1, "tacit.out": "elsewhere", "tacit.flower.deadline": 5.0}])
def test_settings_that_agree_or_are_only_at_the_server(run: dict[str, Any]) -> None:
    Private(quiet(), **DP).start(federation(run=run), start(), num_rounds=1)


def test_both_sides_read_the_runs_config() -> None:
    run = SAME | {"tacit.dp.clip": 0.25, "tacit.seed": 5, "local-epochs": 2}
    one = Private(quiet(), config=run).start(federation(run=run), start(), num_rounds=2)
    two = Private(quiet(), mode="dp", dp={"noise": 1.0, "clip": 0.25}, seed=5)
    assert (floats(one.arrays) == floats(two.start(federation(), start(), num_rounds=2).arrays)).all()


def _said(change: Callable[[ConfigRecord], None]) -> Any:
    """Return a federation whose node 102 gets another call than was sent."""
    grid = federation()
    inner = grid.nodes[102]

    def respond(message: Message) -> Any:
        change(message.content.config_records[envelope.CALL])
        return inner(message)

    grid.nodes[102] = respond
    return grid


def test_a_server_of_another_version(log: pytest.LogCaptureFixture) -> None:
    def older(call: ConfigRecord) -> None:
        call["version"] = "0.0.9"

    with pytest.raises(RunError, match="Node 102 refused: it runs another version of tacit"):
        Private(quiet(), **DP).start(_said(older), start(), num_rounds=1)
    assert "The server runs tacit 0.0.9, this node " in log.text


def test_a_node_of_another_version() -> None:
    grid = federation()

    def older(answer: Message) -> Message:
        said = Introduction(version="0.0.9", parties=(101,), simulated=True)
        answer.content[envelope.FRAME] = envelope.record_of(said.to_frame())
        return answer

    grid.tamper = older
    with pytest.raises(RunError, match=rf"Node 101 runs tacit 0\.0\.9, the server {tacit.__version__}"):
        Private(quiet(), **DP).start(grid, start(), num_rounds=1)


@pytest.mark.parametrize("text", ["no JSON", "[1]", '{"mode": 5}', '{"dp.noise": -1}'])
def test_settings_that_cannot_be_read(text: str) -> None:
    def garbled(call: ConfigRecord) -> None:
        call["settings"] = text

    with pytest.raises(RunError, match="Node 102 refused"):
        Private(quiet(), **DP).start(_said(garbled), start(), num_rounds=1)


def test_a_task_before_the_numbers() -> None:
    terms = Terms(settings='{"mode": "plain"}', weighted_by="num-examples")
    grid = federation(1)
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 1})
    wrapped._greeting(grid)
    assert wrapped._engine is not None
    wrapped._engine.terms = terms.to_record()
    wrapped._engine.nodes[101] = 101
    frame = wire.pack_task(wire.Task(turn=wire.Turn(round_number=1), model=np.zeros(0, np.float32)))
    (reply,) = wrapped._engine.exchange({101: frame}).values()
    with pytest.raises(ClientError, match="does not understand the request"):
        wire.expect(wire.Kind.VECTOR, wire.Turn(round_number=1), 101, reply)


@pytest.mark.parametrize("numbers", [[1, 2], [1, 2, 0], "3", [1, 2, 0.5]])
def test_numbers_that_cannot_be(numbers: Any) -> None:
    terms = Terms(settings='{"mode": "plain"}', weighted_by="n", numbers=Numbers(clients=3, per_round=2, rounds=1))
    record = terms.to_record()
    assert Terms.read(record) == terms
    with pytest.raises(WireError, match="three numbers"):
        Terms.read(record | {"numbers": numbers})


def test_a_real_node_refuses_noise_that_can_be_predicted() -> None:
    grid = federation(tacit_simulation=False)
    with pytest.raises(RunError, match=r"Node 101 refused: the run has a seed.*tacit-simulation=true"):
        Private(quiet(), seed=1, **DP).start(grid, start(), num_rounds=1)
    Private(quiet(), **DP).start(grid, start(), num_rounds=1)


def test_a_real_node_needs_a_pinned_key() -> None:
    wrapped = Private(quiet(), mode="paillier", paillier={"weight_cap": 40, **FEW_BITS})
    with pytest.raises(RunError, match="Node 101 refused: its key file, or the key pinned there"):
        wrapped.start(federation(tacit_simulation=False), start(), num_rounds=1)


def test_a_node_whose_process_is_gone_is_asked_again_next_round() -> None:
    grid = federation()
    grid.dead = {104}
    wrapped = Private(quiet(), mode="plain", federate={"rounds": 2, "clients": 4})
    first = list(wrapped.configure_train(1, start(), ConfigRecord(), grid))
    assert sorted(message.metadata.dst_node_id for message in first) == [101, 102, 103]
    grid.dead = set()
    assert len(list(wrapped.configure_train(2, start(), ConfigRecord(), grid))) == 4


def test_another_mod_inside_works_on_the_apps_own_records() -> None:
    seen = []

    def inner(message: Message, context: Any, call_next: Any) -> Message:
        seen.append(list(message.content))
        answer: Message = call_next(message, context)
        assert "arrays" in answer.content
        return answer

    Private(quiet(), **DP).start(federation(client_app=app(private_mod, inner)), start(), num_rounds=1)
    assert seen == [["arrays", "config"]] * 4
