"""A deployment's folder: what a server that is started again finds there."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from torch import nn

from tacit.accounting import accountant
from tacit.accounting.events import GaussianEvent, RepeatedEvent
from tacit.accounting.ledger import Ledger
from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, RunError
from tacit.flower.envelope import client_app
from tacit.flower.node import Own
from tacit.flower.serve import Deployed, Serving, configuration, serve
from tacit.modes.catalogue import resolve
from tacit.parties.hello import IN_APP
from tacit.runs.result import Result
from tacit.runs.run import resume
from tests.flower.grid import FakeGrid, Respond, grid
from tests.runs.common import Watching

RUN: dict[str, Any] = {
    "mode": "local-dp",
    "dp.noise": 3.0,
    "federate.clients": 3,
    "federate.rounds": 4,
    "flower.patience": 0.05,
    "out": "runs/a",
}


class Crash(BaseException):
    """Nothing in a server catches it, as nothing catches kill -9."""


@dataclass
class Crashing(FakeGrid):
    """A Grid whose server dies after so many trips, when clients have worked and before anything comes back."""

    trips: int = 0

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        pushed = super().push_messages(messages)
        self.trips -= 1
        if not self.trips:
            raise Crash
        return pushed


def _client(number: int, run: dict[str, Any], run_id: int, examples: int = 20) -> Respond:
    def data(_: Any) -> tuple[Any, Any]:
        generator = np.random.Generator(np.random.PCG64(number))
        return generator.standard_normal((examples, 4)).astype(np.float32), np.arange(examples) % 2

    app = client_app(Own(model=lambda: nn.Linear(4, 2), data=data))
    context = Context(run_id, 100 + number, {"partition-id": number}, RecordDict(), run)

    def respond(message: Message) -> list[Message]:
        return [app(message, context)]

    return respond


def _serve(run: dict[str, Any], run_id: int, trips: int = 0, examples: int = 20) -> tuple[Result, Watching]:
    nodes = {100 + number: _client(number, run, run_id, examples) for number in range(3)}
    made: Any = Crashing(nodes, trips=trips)
    test = np.zeros((6, 4), np.float32), np.arange(6) % 2
    watching = Watching()
    serving = Serving(model=lambda: nn.Linear(4, 2), test=lambda: test)
    return serve(made, run, serving=serving, observer=watching), watching


def _crashed(run: dict[str, Any] = RUN, run_id: int = 5) -> list[dict[str, Any]]:
    """Run until the server dies in its third round."""
    with pytest.raises(Crash):
        _serve(run, run_id, trips=4)  # a greeting, two rounds, and the tasks of the third
    return _journal()


def _journal() -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("runs/a/journal.jsonl").read_text().splitlines()]


def _charges(records: list[dict[str, Any]]) -> int:
    return sum(record["type"] == "attempt" and record["charge"] is not None for record in records)


def _epsilon(charges: int) -> float:
    event = RepeatedEvent(event=GaussianEvent(noise_multiplier=3.0), count=charges)
    ledger = Ledger(neighbours="replace-one").charged(event, round_number=4)
    return accountant.epsilon(ledger, 1e-5).epsilon


def test_a_server_that_is_started_again_goes_on_with_its_ledger() -> None:
    before = _crashed()
    assert _charges(before) == 3
    result, watching = _serve(RUN, run_id=6)
    assert [record.round for record in result.rounds] == [1, 2, 3, 4]
    assert [record.round for record in watching.records] == [3, 4], "two were done before"
    records = _journal()
    assert records[: len(before)] == before, "what was written stays"
    assert _charges(records) == 5, "the round in flight was sent twice, and is charged twice"
    assert result.claimed.epsilon == pytest.approx(_epsilon(5), rel=1e-6)
    assert not [path for path in Path("runs").iterdir() if path.name != "a"], "and no other folder is begun"


def test_a_run_whose_data_are_in_the_nodes_says_so() -> None:
    result, watching = _serve(RUN, run_id=5)
    assert IN_APP in watching.notes
    assert IN_APP in result.notes
    assert IN_APP in Result.read(Path("runs/a/result.json")).notes


def test_a_budget_counts_on_after_a_restart() -> None:
    run = RUN | {"dp.max_epsilon": 1.001 * _epsilon(4)}  # enough for four rounds, of which one is lost
    _crashed(run)
    result, watching = _serve(run, run_id=6)
    assert len(result.rounds) == 3
    assert any("over the budget of" in note for note in watching.notes)
    assert result.claimed.epsilon == pytest.approx(_epsilon(4), rel=1e-6)


def test_it_can_crash_again_and_again() -> None:
    _crashed()
    for run_id in (6, 7):
        with pytest.raises(Crash):
            _serve(RUN, run_id=run_id, trips=2)
    result, _ = _serve(RUN, run_id=8)
    assert len(result.rounds) == 4
    assert _charges(_journal()) == 7


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"dp.noise": 1.0}, "dp.noise was 3.0 and is 1.0"),
        ({"federate.rounds": 9}, "federate.rounds was 4 and is 9"),
        ({"mode": "plain", "dp.noise": None}, "dp.noise was 3.0 and is None; mode was 'local-dp' and is 'plain'"),
    ],
)
def test_a_run_with_other_settings_is_refused_in_the_folder_of_an_unfinished_one(
    changes: dict[str, Any], what: str
) -> None:
    before = _crashed()
    run = {key: value for key, value in {**RUN, **changes}.items() if value is not None}
    with pytest.raises(RunError, match=f"unfinished run with other settings: {what}.*Nothing was sent"):
        _serve(run, run_id=6)
    assert _journal() == before


def test_settings_that_are_the_servers_own_affair_may_change() -> None:
    _crashed()
    result, _ = _serve(RUN | {"flower.deadline": 100.0, "evaluate.every": 2}, run_id=6)
    assert len(result.rounds) == 4


def test_a_complete_run_is_not_begun_anew_beside_its_ledger() -> None:
    _serve(RUN, run_id=5)
    before = _journal()
    with pytest.raises(RunError, match=r"holds a run that is complete.*--run-config 'out=\"a-2\"'.*adds up"):
        _serve(RUN, run_id=6)
    assert _journal() == before
    result, _ = _serve(RUN | {"out": "runs/a-2"}, run_id=6)
    assert len(result.rounds) == 4


def test_a_deployment_is_not_resumed_as_something_else(tmp_path: Path) -> None:
    _crashed()
    with pytest.raises(RunError, match=r"The clients of .* are SuperNodes: go on with it where it was begun"):
        resume(tmp_path / "runs" / "a")


def test_a_run_of_one_machine_is_not_resumed_as_a_deployment() -> None:
    _crashed()
    lines = _journal()
    del lines[0]["deployed"]
    Path("runs/a/journal.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with pytest.raises(RunError, match="was no deployment"):
        _serve(RUN, run_id=6)


def test_clients_of_dp_sgd_that_come_back_with_other_data_are_refused() -> None:
    run = {key: value for key, value in RUN.items() if key != "dp.noise"} | {"mode": "dp-sgd", "dpsgd.noise": 1.0}
    _crashed(run)
    with pytest.raises(RunError, match="Client 0 holds 40 examples, and held 20 when the run"):
        _serve(run, run_id=6, examples=40)
    result, _ = _serve(run, run_id=7)
    assert len(result.rounds) == 4


def test_a_run_that_is_not_kept_says_so() -> None:
    run = {key: value for key, value in RUN.items() if key != "out"}
    _, watching = _serve(run, run_id=5)
    assert "The run is not kept: set out, the server's folder for it." in watching.notes
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"federate.drop": 0.1}, "these clients are real"), ({"data.name": "femnist"}, "federate.clients has to be set")],
)
def test_what_real_nodes_can_not_do_is_refused(settings: dict[str, float | str], what: str) -> None:
    config: RunConfig = configuration(settings)
    with pytest.raises(ConfigError, match=what):
        Deployed(grid=grid({}), config=resolve(config), observer=Watching())
