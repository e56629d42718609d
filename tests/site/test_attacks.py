"""The red team: a lying server and a lying relay, over real sockets, against real processes of a site."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from torch import nn

from tacit import wire
from tacit.errors import DropoutError, RunError
from tacit.federated.plan import Plan
from tacit.flow import ClientId, Flow, Frames, Gather
from tacit.flower.envelope import client_app
from tacit.flower.relay import relay
from tacit.flower.serve import Serving
from tacit.flower.serve import serve as serve_hub
from tacit.mechanisms.mechanism import Work
from tacit.modes.catalogue import plan_of, resolve
from tacit.modes.keys import write_keys
from tacit.parties.calls import Call
from tacit.parties.hello import GREETING, Numbers, Terms
from tacit.protocols.masks import MaskedSum
from tacit.protocols.protocol import Total
from tacit.randomness import Randomness
from tacit.service import SOCKET, Code, Message, ServiceError
from tacit.site.contract import LEDGER, read
from tacit.site.costs import Price
from tacit.site.data import load
from tacit.site.ledger import Ledger, Release, Row
from tacit.site.process import Site, Workshop
from tacit.site.serving import serve
from tacit.wire import Failure, Kind, Turn
from tests.flower.grid import Respond, grid
from tests.runs.common import Watching
from tests.site.common import PARAMETERS, Hub, code_of, config_of, kind_of, make_site, serving, settings

pytestmark = pytest.mark.xdist_group("site")

CLIENTS = 5
RULES = {
    "modes": ["local-dp", "dp", "masks", "paillier", "dp-sgd"],
    "noise": 1.0,
    "cohort": 3,
    "clip": 2.0,
    "rounds": 6,
    "passes": 5,
}
MASKS = {"mode": "masks", "masks__dp": True, "dp__noise": 100.0, "masks__signed": True, "federate__minimum_clients": 4}
ENCRYPTED = {
    "mode": "paillier",
    "paillier__dp": True,
    "dp__noise": 100.0,
    "paillier__bits": 512,
    "paillier__insecure_key_size": True,
}


@pytest.fixture(scope="module")
def key_files(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The key that the site's operator compared, and one of the server's own."""
    found: dict[str, Path] = {}
    config = resolve(config_of(settings(**ENCRYPTED)))
    for name in ("true", "foreign"):
        folder = tmp_path_factory.mktemp(name)
        made = write_keys(config.paillier, folder)
        found |= {name: made.public, f"{name} secret": made.secret[-1]}
    return found


@dataclass(frozen=True, kw_only=True)
class Started:
    """Sites, and the number of the last one's process."""

    sites: tuple[Path, Path, Path]
    last: int


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory, key_files: Mapping[str, Path]) -> Iterator[Started]:
    """Three sites, whose processes run for all tests; the last may be killed."""
    folder = tmp_path_factory.mktemp("sites")
    rich = make_site(
        folder / "rich",
        rules={**RULES, "rounds_per_day": 1_000},
        budget={"epsilon": 100.0, "unit": "client"},
        keys={"pin": str(key_files["true"])},
    )
    poor = make_site(
        folder / "poor",
        number=1,
        rules={**RULES, "rounds_per_day": 10},
        budget={"epsilon": 3.0, "unit": "client", "trust": "server"},
    )
    doomed = make_site(folder / "doomed", rules=RULES, budget={"epsilon": 100.0})
    with serving(rich, poor, doomed) as processes:
        yield Started(sites=(rich, poor, doomed), last=processes[doomed])


@pytest.fixture(scope="module")
def sites(started: Started) -> tuple[Path, Path]:
    """Two sites."""
    return started.sites[0], started.sites[1]


@pytest.fixture(scope="module")
def site(sites: tuple[Path, Path]) -> Path:
    """A site that trusts nobody, with a large budget."""
    return sites[0]


@pytest.fixture(scope="module")
def poor(sites: tuple[Path, Path]) -> Path:
    """A site that trusts the server to add noise, with little to spend and few rounds per day."""
    return sites[1]


_RUNS = iter(range(100, 10_000))


def _hub(site: Path, **changes: Any) -> Hub:
    return Hub.of(site, run=next(_RUNS), **{"dp__noise": 40.0, **changes})


def _rows(site: Path) -> list[Row]:
    contract = read(site)
    with Ledger.open(site / LEDGER, contract) as ledger:
        return ledger.rows()


# ---------------------------------------------------------------------------------------------------------------------
# The first word: a run that the contract does not allow is refused at its greeting, and at its tasks.

FIRST_WORDS: dict[str, tuple[dict[str, Any], Failure]] = {
    "no noise": ({"dp__noise": 0.0}, Failure.CONTRACT),
    "noise below the floor": ({"dp__noise": 0.5}, Failure.CONTRACT),
    "mode plain": ({"mode": "plain", "dp__noise": None, "dp__clip": None}, Failure.CONTRACT),
    "noise that the server would add": ({"mode": "dp"}, Failure.CONTRACT),
    "a clip beyond the rule": ({"dp__clip": 3.0}, Failure.CONTRACT),
    "fewer clients than the rule": ({"federate__clients": 2}, Failure.CONTRACT),
    "more rounds than the rule": ({"federate__rounds": 7}, Failure.CONTRACT),
    "a seed, whose noise can be predicted": ({"seed": 1}, Failure.PREDICTABLE),
    "another data set": ({"data__name": "staff.csv"}, Failure.CONTRACT),
    "a model whose code is shipped": ({"model__name": "evil.module:Model"}, Failure.CONTRACT),
    "passes without end": ({"train__local_epochs": 1_000}, Failure.CONTRACT),
    "how many rows there are": ({"mode": "dp-sgd", "dpsgd__noise": 2.0, "dp__noise": None}, Failure.CONTRACT),
    "how many rows there are, by batches that are too large": ({"dpsgd__noise": 2.0}, Failure.CONTRACT),
    "masks without noise": ({"mode": "masks", "dp__noise": None, "dp__clip": None}, Failure.CONTRACT),
    "masks whose lists nobody signs": ({**MASKS, "masks__signed": False}, Failure.CONTRACT),
    "a sum of two under masks": (
        {**MASKS, "federate__clients": 3, "federate__minimum_clients": 2, "masks__corrupted": 0.0},
        Failure.CONTRACT,
    ),
    "a key that all clients share": ({**ENCRYPTED, "paillier__keys": "shared"}, Failure.CONTRACT),
    "a budget that buys little noise": ({"dp__noise": None, "dp__epsilon": 1e4}, Failure.CONTRACT),
}


@pytest.mark.parametrize("attack", FIRST_WORDS)
def test_a_run_against_the_contract_is_refused(site: Path, attack: str) -> None:
    changes, expected = FIRST_WORDS[attack]
    hub = _hub(site, **changes)
    before = len(_rows(site))
    assert [code_of(hub.greet()), code_of(hub.round(1))] == [expected, expected]
    assert len(_rows(site)) == before


# ---------------------------------------------------------------------------------------------------------------------
# Mid-run: what was said first holds.

CHANGES: dict[str, tuple[dict[str, Any], Failure]] = {
    "less noise": ({"dp__noise": 39.0}, Failure.CHANGED),
    "another mode": ({"mode": "masks", "masks__dp": True, "dp__noise": 40.0, "masks__signed": True}, Failure.CHANGED),
    "more rounds": ({"federate__rounds": 6}, Failure.CHANGED),
    "another clip": ({"dp__clip": 2.0}, Failure.CHANGED),
    "other numbers of clients": ({"federate__clients": 50}, Failure.CHANGED),
    "another model": ({"model__name": "mlp"}, Failure.CHANGED),
    "a rate that diverges": ({"optimizer__lr": 1e5}, Failure.CHANGED),
}


@pytest.fixture(scope="module")
def begun(site: Path) -> Hub:
    """A run of which one round is answered."""
    hub = _hub(site)
    assert kind_of(hub.greet()) is Kind.HELLO
    assert kind_of(hub.round(1)) is Kind.VECTOR
    return hub


@pytest.mark.parametrize("attack", CHANGES)
def test_settings_changed_in_the_middle_of_a_run_are_refused(begun: Hub, attack: str) -> None:
    changes, expected = CHANGES[attack]
    lying = begun.lying(**{"dp__noise": 40.0, **changes})
    assert code_of(lying.round(2)) is expected


def test_a_setting_that_does_not_exist_or_is_left_out_is_refused(begun: Hub) -> None:
    assert code_of(begun.forged(dp__noise_off=True).round(2)) is Failure.SETTINGS
    named = json.loads(begun.said["settings"])
    del named["dp.clip"]
    silent = replace(begun, said={**begun.said, "settings": json.dumps(named, sort_keys=True)})
    assert code_of(silent.round(2)) is Failure.CHANGED


# ---------------------------------------------------------------------------------------------------------------------
# Turns: nothing is released twice, whatever is asked.


def test_one_round_asked_hundreds_of_times_is_one_release(site: Path) -> None:
    hub = _hub(site)
    before = len(_rows(site))
    replies = [hub.round(1) for _ in range(300)]
    assert kind_of(replies[0]) is Kind.VECTOR
    assert {code_of(reply) for reply in replies[1:]} == {Failure.REPEATED}
    assert len(_rows(site)) == before + 1


def test_one_round_asked_at_the_same_moment_by_many_is_one_release(site: Path) -> None:
    hub = _hub(site)
    before = len(_rows(site))
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda _: hub.round(1), range(6)))
    kinds = sorted(kind_of(reply) for reply in replies)
    assert kinds == [Kind.VECTOR] + [Kind.FAILURE] * 5
    assert len(_rows(site)) == before + 1


def test_replayed_and_reordered_rounds_are_refused(site: Path) -> None:
    hub = _hub(site)
    third = hub.task(3)
    assert kind_of(hub.ask(third)) is Kind.VECTOR
    assert code_of(hub.ask(third)) is Failure.REPEATED
    assert code_of(hub.round(2)) is Failure.REPEATED
    assert kind_of(hub.round(4)) is Kind.VECTOR


@pytest.mark.parametrize(
    ("number", "attempt"), [(0, 0), (5, 0), (4_000_000_000, 0), (2, 60_000)], ids=["zeroth", "past", "huge", "try"]
)
def test_rounds_and_tries_that_nobody_announced_are_refused(begun: Hub, number: int, attempt: int) -> None:
    assert code_of(begun.round(number, attempt=attempt)) is Failure.BEYOND


def test_a_round_under_two_names_of_a_run_is_two_releases_with_two_noises(site: Path) -> None:
    first, second = _hub(site), _hub(site)
    before = len(_rows(site))
    replies = [hub.round(1) for hub in (first, second)]
    assert len(_rows(site)) == before + 2
    vectors = [wire.unpack_floats(wire.unpack(reply).body) for reply in replies]
    assert np.abs(vectors[0] - vectors[1]).max() > 1.0  # noise of standard deviation 40 on each


# ---------------------------------------------------------------------------------------------------------------------
# Frames, and what a relay says beside them.


def _said(hub: Hub, **changes: Any) -> Hub:
    return replace(hub, said={**hub.said, **changes})


def _version(hub: Hub) -> bytes:
    return _said(hub, version="0.0.1").greet()


def _strategy(hub: Hub) -> bytes:
    numbers = Numbers(clients=10**6, per_round=10**6, rounds=1)
    return _said(hub, **Terms(settings=hub.said["settings"], numbers=numbers).to_record()).greet()


def _opening(kind: Kind) -> Callable[[Hub], bytes]:
    return lambda hub: hub.ask(wire.pack(kind, Turn(round_number=0), b""))


FRAMES: dict[str, tuple[Callable[[Hub], bytes], Failure]] = {
    "no frame": (lambda hub: hub.ask(b""), Failure.REQUEST),
    "a frame cut short": (lambda hub: hub.ask(hub.task(2)[:-3]), Failure.REQUEST),
    "a reply as a request": (_opening(Kind.VECTOR), Failure.REQUEST),
    "a huge layout": (lambda hub: hub.round(2, parameters=1_000_000), Failure.REQUEST),
    "a model of one number": (lambda hub: hub.round(2, parameters=1), Failure.REQUEST),
    "a model that is no number": (lambda hub: hub.round(2, value=float("nan")), Failure.REQUEST),
    "a key asked for": (_opening(Kind.KEY), Failure.PARTY),
    "an opening asked for": (_opening(Kind.OPEN), Failure.PARTY),
    "an admission asked for": (_opening(Kind.ADMIT), Failure.PARTY),
    "another client's number": (lambda hub: replace(hub, party=1).round(2), Failure.PARTY),
    "a key holder's number": (lambda hub: replace(hub, party=-1).round(2), Failure.PARTY),
    "a party by name": (lambda hub: hub.ask(hub.task(2), party="0"), Failure.REQUEST),
    "a run by name": (lambda hub: hub.ask(hub.task(2), run={"a": 1}), Failure.REQUEST),
    "no terms": (lambda hub: hub.ask(hub.task(2), said={}), Failure.VERSION),
    "terms that are no JSON": (lambda hub: _said(hub, settings="{" * 10_000).greet(), Failure.REQUEST),
    "terms of another version": (_version, Failure.VERSION),
    "terms of a wrapped strategy": (_strategy, Failure.REQUEST),
    "a step of a protocol that the run has not": (_opening(Kind.REVEAL), Failure.REQUEST),
}


@pytest.mark.parametrize("attack", FRAMES)
def test_a_frame_that_no_honest_hub_sends_is_refused(site: Path, begun: Hub, attack: str) -> None:
    send, expected = FRAMES[attack]
    before = len(_rows(site))
    assert code_of(send(replace(begun, run=next(_RUNS)))) is expected
    assert len(_rows(site)) == before


def test_swapped_partition_ids_change_nothing_where_the_contract_knows_its_number(site: Path) -> None:
    hub = replace(_hub(site), partition=3)
    assert json.loads(bytes(wire.unpack(hub.greet()).body))["parties"] == [0]
    assert code_of(replace(hub, party=3).round(1)) is Failure.PARTY


def test_more_than_a_service_takes_is_refused_before_it_is_read(site: Path) -> None:
    with pytest.raises(ServiceError) as refused:
        _hub(site).ask(GREETING, more="x" * (1 << 20))
    assert refused.value.code is Code.TOO_LARGE


def test_replies_tell_nothing_beside_what_is_protected(begun: Hub) -> None:
    said = json.loads(bytes(wire.unpack(begun.greet()).body))
    assert said["examples"] is None
    from tacit.service import call

    head = {"run": begun.run, "party": 0, "said": dict(begun.said), "partition": None}
    assert call(read(begun.site).socket, Message(head=head, body=begun.task(3))).head == {"seconds": {}}


# ---------------------------------------------------------------------------------------------------------------------
# The honest way: a hub on Flower, an app that only carries frames, and the sites' processes.

NOBODY = "The process that holds its data, or its key, did not answer."


def _carrier(number: int, site: Path, run: Mapping[str, Any]) -> Respond:
    app = client_app(relay)
    node: dict[str, int | float | str] = {"partition-id": number, "tacit-socket": str(site / SOCKET)}
    context = Context(TaskIdentity.run_id or 5, 100 + number, node, RecordDict(), dict(run))
    return lambda message: [app(message, context)]


def test_a_hub_on_flower_learns_from_sites_whose_nodes_only_carry_frames(sites: tuple[Path, Path]) -> None:
    asked = settings(dp__noise=40.0, federate__rounds=2, federate__minimum_clients=2, flower__patience=0.05)
    before = [len(_rows(site)) for site in sites]
    nodes = {10 + number: _carrier(number, site, asked) for number, site in enumerate(sites)}
    serving_ = Serving(model=lambda: nn.Sequential(nn.Flatten(), nn.Linear(3, 2)), test=_tested)
    result = serve_hub(grid(nodes), asked, serving=serving_, observer=Watching())
    assert [record.clients_replied for record in result.rounds] == [2, 2]
    assert [len(_rows(site)) for site in sites] == [count + 2 for count in before]
    assert result.privacy is not None


def _tested() -> tuple[Any, Any]:
    return np.zeros((4, 3), np.float32), np.array([0, 1, 0, 1])


def test_where_no_process_answers_the_node_says_so_and_nothing_else(site: Path) -> None:
    node: dict[str, int | str] = {"partition-id": 0, "tacit-socket": str(site / "nowhere")}
    answer = relay(Call(party=0, frame=GREETING, said={}, node=node, run={}, run_id=1))
    assert (answer.frame, answer.error, answer.reason) == (b"", 8, NOBODY)
    real = Call(party=0, frame=GREETING, said={"trial": str(site.parent)}, node={"partition-id": 0}, run={}, run_id=1)
    assert code_of(relay(real).frame) is Failure.NO_PROCESS, "a real node takes no server's word for where data are"


# ---------------------------------------------------------------------------------------------------------------------
# Budgets: whatever runs are called, and whoever else spends.


def test_noise_of_a_trusted_server_is_charged_and_its_clip_can_not_be_moved_apart(poor: Path) -> None:
    hub = replace(Hub.of(poor, run=51, mode="dp", dp__noise=40.0), party=1)
    assert kind_of(hub.greet()) is Kind.HELLO
    wide = plan_of(resolve(config_of(settings(mode="dp", dp__clip=1.5))), CLIENTS).mechanism.public_state()
    assert code_of(replace(hub, extras=wide).round(1)) is Failure.CHANGED
    assert code_of(replace(hub, extras=b"short").round(2)) is Failure.REQUEST


def test_new_names_of_a_run_do_not_renew_the_budget_and_tomorrow_does_not_come_sooner(poor: Path) -> None:
    before, codes = len(_rows(poor)), []
    for run in range(1_001, 1_030):
        reply = replace(Hub.of(poor, run=run, dp__noise=12.0), party=1).round(1)
        codes += [code_of(reply)] if kind_of(reply) is Kind.FAILURE else []
    assert set(codes) == {Failure.CONTRACT}  # rounds_per_day
    assert len(_rows(poor)) == 10
    assert len(codes) == 29 - (10 - before)


# ---------------------------------------------------------------------------------------------------------------------
# Sums: a foreign key, and differences of sums under masks.


def test_nothing_is_encrypted_to_a_key_that_the_operator_did_not_compare(
    site: Path, key_files: Mapping[str, Path]
) -> None:
    from tacit.modes.keys import holder_of, read_key
    from tacit.protocols.paillier import Caution, PaillierSum

    hub = _hub(site, **ENCRYPTED)
    assert kind_of(hub.greet()) is Kind.HELLO
    config = resolve(config_of(settings(**ENCRYPTED)))
    protocol = plan_of(config, CLIENTS).protocol
    assert isinstance(protocol, PaillierSum)
    for name, expected in (("foreign", Kind.FAILURE), ("true", Kind.ENROL)):
        caution = Caution(rules=protocol.rules, layout=protocol.layout, floor=2, clients=None, memory=b"")
        holder = holder_of(read_key(key_files[f"{name} secret"], config.paillier), config.paillier, caution)
        flow = protocol.setup(range(CLIENTS))
        asked = next(flow)
        enrol = flow.send({party: holder.answer(wire.unpack(frame)) for party, frame in asked.items()})
        assert kind_of(hub.ask(enrol[0])) is expected


@dataclass
class Round:
    """A round under masks of the real site, number 0, and others of the test's own; frames and replies are kept."""

    hub: Hub
    plan: Plan
    states: dict[ClientId, bytes] = field(default_factory=dict)
    kept: dict[Kind, tuple[bytes, bytes]] = field(default_factory=dict)

    def run(
        self, number: int, *, lie: Callable[[MaskedSum], MaskedSum] = lambda one: one, cohort: int = CLIENTS
    ) -> Total:
        """Enrol everyone, and then sum as a server does whose rules are others."""
        protocol = self.plan.protocol
        assert isinstance(protocol, MaskedSum)
        enrolled = self._driven(protocol.setup(range(CLIENTS)))
        task = wire.unpack_task(wire.unpack(self.hub.task(number)))
        total: Total = self._driven(lie(enrolled).server(range(cohort), task, PARAMETERS))
        return total

    def _driven(self, flow: Flow[Any]) -> Any:
        try:
            requests = next(flow)
            while True:
                requests = flow.send(self._answered(requests))
        except StopIteration as done:
            return done.value

    def _answered(self, requests: Frames) -> Frames:
        replies = {}
        for client, frame in requests.items():
            found = wire.unpack(frame)
            if client == 0:
                replies[client] = self.hub.ask(frame)
                self.kept[found.kind] = frame, replies[client]
                continue
            vector = self._noise(client) if found.kind is Kind.TASK else None
            state = self.states.get(client, b"")
            self.states[client], replies[client] = self.plan.protocol.client(state, found, vector, number=client)
        if isinstance(requests, Gather):
            for client, reply in replies.items():
                requests.receive(client, reply)
            return {}
        return replies

    def _noise(self, client: ClientId) -> Any:
        work = Work(update=np.zeros(PARAMETERS, np.float32), examples=1, loss=0.0)
        return self.plan.mechanism.fitted((PARAMETERS,)).on_client(work, Randomness.of(seed=client))


def _masks(site: Path) -> Round:
    played = Round(hub=_hub(site, **MASKS), plan=plan_of(resolve(config_of(settings(**MASKS))), CLIENTS))
    assert kind_of(played.hub.greet()) is Kind.HELLO
    return played


@pytest.fixture(scope="module")
def masked(site: Path) -> Round:
    """A run under masks whose first round is done; the site was one of its clients."""
    played = _masks(site)
    assert played.run(1).clients == tuple(range(CLIENTS))
    return played


def test_a_sum_under_masks_is_charged_by_the_sites_own_share_of_the_noise(site: Path, masked: Round) -> None:
    row = next(row for row in reversed(_rows(site)) if row.run == str(masked.hub.run))
    price = json.loads(row.price)
    assert 1.0 < price["nobody"]["noise_multiplier"] < price["cohort"]["noise_multiplier"]


@pytest.mark.parametrize("kind", [Kind.SHARE, Kind.TASK, Kind.LIST, Kind.REVEAL])
def test_a_message_under_masks_that_comes_again_gets_the_same_bytes_or_nothing(masked: Round, kind: Kind) -> None:
    frame, reply = masked.kept[kind]
    again = masked.hub.ask(frame)
    assert again == reply or code_of(again) is Failure.REPEATED
    assert (again == reply) is (kind in (Kind.LIST, Kind.REVEAL))


def test_two_sums_that_differ_by_a_client_are_not_revealed(masked: Round) -> None:
    """The server shows another list of the same round, one client shorter."""
    frame = wire.unpack(masked.kept[Kind.LIST][0])
    listed = bytes(frame.body)
    fewer = bytes([listed[0] & ~(1 << (8 - CLIENTS)) & 0xFF]) + listed[1:]
    assert bin(fewer[0]).count("1") == CLIENTS - 1
    assert code_of(masked.hub.ask(wire.pack(Kind.LIST, frame.turn, fewer))) is Failure.CHANGED


def test_a_cohort_that_is_smaller_than_announced_is_refused(site: Path) -> None:
    played = _masks(site)
    with pytest.raises(DropoutError):
        played.run(1, lie=lambda true: replace(true, minimum_clients=2, expected=2), cohort=2)
    assert code_of(played.kept[Kind.SHARE][1]) is Failure.REFUSED


# ---------------------------------------------------------------------------------------------------------------------
# The process itself.


def test_a_second_process_does_not_take_the_socket_of_the_first(site: Path) -> None:
    with pytest.raises(RunError, match="in use by another process"):
        serve(site)
    assert kind_of(_hub(site).greet()) is Kind.HELLO


def test_every_attack_is_named_in_the_threat_model() -> None:
    page = " ".join((Path(__file__).parents[2] / "docs" / "threat-model.md").read_text().split())
    names = [*FIRST_WORDS, *CHANGES, *FRAMES]
    assert len(names) >= 40
    assert [name for name in names if f"{name};" not in page and f"{name}." not in page] == []


def test_nobody_but_the_owner_reads_a_sites_files(site: Path) -> None:
    modes = {path.name: path.stat().st_mode & 0o077 for path in site.iterdir()}
    assert set(modes.values()) == {0}, modes


def test_a_budget_that_was_spent_elsewhere_is_spent(site: Path) -> None:
    """The last test of this site: nothing is left of its budget."""
    contract = read(site)
    hub = _hub(site)
    assert kind_of(hub.round(1)) is Kind.VECTOR
    small = contract.model_copy(update={"budget": contract.budget.model_copy(update={"epsilon": 1e6})})
    price = Price(**dict.fromkeys(("nobody", "cohort", "server"), _gaussian(0.05)))
    with Ledger.open(site / LEDGER, small) as elsewhere:
        elsewhere.charge(
            Release(run="elsewhere", turn=Turn(round_number=1), mode="local-dp", settings="", price=price), small
        )
    assert code_of(hub.round(2)) is Failure.BUDGET


def _gaussian(noise: float) -> Any:
    from tacit.accounting.events import GaussianEvent

    return GaussianEvent(noise_multiplier=noise)


def test_a_killed_process_has_counted_what_it_answered_and_the_next_answers_no_round_again(started: Started) -> None:
    site = started.sites[-1]
    hub = _hub(site)
    replies = [hub.round(1)]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(hub.round, 2)
        while len(_rows(site)) < 2 and not asked.done():
            pass
        os.kill(started.last, signal.SIGKILL)  # charged, and not yet answered, or just so
        with contextlib.suppress(ServiceError):
            replies.append(asked.result())
    assert {kind_of(reply) for reply in replies} == {Kind.VECTOR}
    contract = read(site)
    with Ledger.open(site / LEDGER, contract) as ledger:
        assert len(ledger.rows()) == 2
        workshop = Workshop(contract, load(contract.data))
        again = Site(folder=site, contract=contract, ledger=ledger, workshop=workshop)
        head = {"run": hub.run, "party": 0, "said": dict(hub.said), "partition": None}
        asked_again = [again.answer(Message(head=head, body=hub.task(number))).body for number in (2, 3)]
        assert code_of(asked_again[0]) is Failure.REPEATED
        assert kind_of(asked_again[1]) is Kind.VECTOR
        assert len(ledger.rows()) == 3
