"""A server that lies to a key holder's process: every attack goes over the real socket, and is refused."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import paillier
from tacit.crypto.paillier.knowledge import KnownNoise, Proof, encrypted
from tacit.errors import TacitError
from tacit.flow import InProcessEngine, drive
from tacit.flower.relay import relay
from tacit.parties.calls import Call
from tacit.parties.hello import GREETING, Introduction
from tacit.protocols.paillier import Rules
from tacit.protocols.paillier.binding import Admission, noise_of, unpack_clients
from tacit.protocols.paillier.client import Member
from tacit.protocols.paillier.session import SETUP
from tacit.protocols.signatures import new_identity, read_identity
from tacit.service import Code, Header, Message
from tests.holder.common import PEOPLE, RULES, People, Remote, Serving, code_of, last_refusal, made, run_with, why
from tests.protocols.paillier.run import LENGTH, Run, enrol, less, opens, passed_off, proof_of, refused
from tests.protocols.test_conformance import key_pair, key_shares, layout

NOTHING = {"authority": "nothing of it is told", "threshold": "has not signed"}


@dataclass(frozen=True, kw_only=True)
class Target:
    """A process under attack."""

    keys: str
    serving: Serving
    people: People

    @property
    def remote(self) -> Remote:
        """Its socket."""
        return self.serving.remote

    def run(self, clients: int = 4, rules: Rules = RULES) -> Run:
        """Return a run of honest clients that no other test has."""
        return run_with(self.keys, self.remote, self.people, identities=self.people.some(clients), rules=rules)


@pytest.fixture(scope="module", params=["authority", "threshold"])
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Return a process that lives through all attacks."""
    people = People(PEOPLE)
    folder = made(tmp_path_factory.mktemp("held") / "holder", request.param, people)
    serving = Serving(folder)
    yield Target(keys=request.param, serving=serving, people=people)
    assert serving.stop() == 0


def test_what_is_honest_is_opened_and_again_where_an_answer_was_lost(target: Target) -> None:
    run = target.run()
    before = len(target.serving.memory.opened)
    for number in (1, 2):
        opening = run.opening(run.replies(number))
        for _ in range(2):
            opens(run.ask(opening, number), run.exact(range(4)))
    assert len(target.serving.memory.opened) == before + 2  # what was asked for again is counted once


def test_one_client_less_in_the_next_round_is_refused(target: Target) -> None:
    """Both rounds were given the same model: the difference would be client 3's update."""
    run = target.run()
    opens(run.open([0, 1, 2, 3], 1), run.exact(range(4)))
    assert refused(run.open([0, 1, 2], 2), "differs from one that was opened by 1 client")
    opens(run.open([0, 1, 2, 3], 3), run.exact(range(4)))


def test_one_client_less_in_a_new_run_is_refused(target: Target) -> None:
    """The memory is that of the key: a new run id forgets nothing."""
    identities = target.people.some()
    run = run_with(target.keys, target.remote, target.people, identities=identities)
    opens(run.open(range(4)), run.exact(range(4)))
    again = run_with(target.keys, target.remote, target.people, identities=identities)
    assert refused(again.open([0, 1, 2]), "differs from one that was opened by 1 client")
    renumbered = {3 - number: identity for number, identity in identities.items()}
    swapped = run_with(target.keys, target.remote, target.people, identities=renumbered)
    assert refused(swapped.open([1, 2, 3]), "differs from one that was opened by 1 client")
    assert "differs from one that was opened" in last_refusal(target.serving)


def test_one_client_more_and_one_client_exchanged_are_refused(target: Target) -> None:
    run = target.run(5)
    opens(run.open([0, 1, 2, 3], 1), run.exact(range(4)))
    assert refused(run.open([0, 1, 2, 3, 4], 2), "by 1 client")
    assert refused(run.open([1, 2, 3, 4], 2), "by 2 clients")


def test_after_kill_nine_a_difference_is_refused_and_the_run_goes_on(target: Target) -> None:
    run = target.run()
    opens(run.open([0, 1, 2, 3], 1), run.exact(range(4)))
    target.serving.kill()
    target.serving.start()
    assert refused(run.open([0, 1, 2], 2), "by 1 client")
    opens(run.open([0, 1, 2, 3], 3), run.exact(range(4)))


def test_two_sums_of_a_round_are_refused(target: Target) -> None:
    run = target.run(7)
    opens(run.open([0, 1, 2, 3]), run.exact(range(4)))
    for attempt in (0, 1):
        others = {client: run.reply(client, 1, attempt) for client in (4, 5, 6)}  # nobody of the first sum
        assert refused(run.ask(run.opening(others), 1, attempt), "a second sum for round 1")


@pytest.mark.parametrize("rules", [Rules(minimum_clients=2, rounds=6), Rules(minimum_clients=0, rounds=1)])
def test_a_run_of_smaller_sums_than_the_operator_allows_does_not_begin(target: Target, rules: Rules) -> None:
    reply = target.remote.ask(wire.pack(wire.Kind.KEY, SETUP, rules.to_bytes()))
    assert "opens none of fewer than 3" in why(reply)
    with pytest.raises(TacitError):
        target.run(rules=rules)


@pytest.mark.parametrize("rounds", [61, 4_000_000_000])
def test_a_run_of_more_rounds_than_the_operator_allows_does_not_begin(target: Target, rounds: int) -> None:
    reply = target.remote.ask(wire.pack(wire.Kind.KEY, SETUP, Rules(minimum_clients=3, rounds=rounds).to_bytes()))
    assert f"announced with {rounds} rounds, and this key holder allows 60" in why(reply)


def test_clients_that_were_told_other_rules_are_not_admitted(target: Target) -> None:
    """A server that tells clients of sums of four, for which they size their noise, and the holder of three."""
    identities = target.people.some()
    run = run_with(target.keys, target.remote, target.people, identities=identities)
    run.protocol = replace(run.protocol, minimum_clients=4)
    run.states.clear()
    run.session.forget(1)
    drive(run.ready.setup(range(4)), InProcessEngine(answer=run.answer))
    assert 1 not in run.session.members(range(4)) or target.keys == "threshold"
    assert 1 not in run.session.admitted[-1]


def test_a_sum_of_too_few_is_refused(target: Target) -> None:
    run = target.run()
    for clients in ([0], [0, 1]):
        assert refused(run.open(clients), f"a sum of {len(clients)} vectors was not opened, expected at least 3")


@pytest.mark.parametrize("number", [0, 7, 4_000_000_000])
def test_a_round_that_was_not_announced_is_refused(target: Target, number: int) -> None:
    run = target.run()
    request, replies = run.task(number, told=run.check.seed), {}
    for client in range(4):  # made by clients that would answer such a task
        member = Member.from_bytes(run.states[client])
        told = (request, run.protocol.keys, run.rules, noise_of(run.session.key, run.protocol.keys))
        replies[client] = run.parted(b"".join(member.reply(run.vectors[client], layout(LENGTH, 256), *told)))
    assert refused(run.ask(run.opening(replies), number), "expected a round from 1 to 6")


def test_ciphertexts_of_another_round_are_refused(target: Target) -> None:
    run = target.run()
    replies = run.replies(1)
    assert refused(run.ask(run.opening(replies), 2), NOTHING[target.keys])


def test_ciphertexts_of_another_run_are_refused(target: Target) -> None:
    identities = target.people.some()
    run = run_with(target.keys, target.remote, target.people, identities=identities)
    replies = run.replies()
    again = run_with(target.keys, target.remote, target.people, identities=identities)
    assert refused(again.ask(again.opening(replies)), NOTHING[target.keys])


def test_a_sum_without_a_client_that_is_on_its_list_is_refused(target: Target) -> None:
    run = target.run()
    replies = run.replies()
    opening = run.opening(replies)
    without = [body for client, (_, body) in replies.items() if client != 3]
    if target.keys == "threshold":
        lying = replace(opening, vectors=without)
        assert isinstance(run.ask(lying), str)
        return
    short = run.added(without)
    assert refused(run.ask(replace(opening, vectors=[short.to_bytes()])), "3 summands, and 4 clients are named")
    claimed = replace(short, summands=4)
    assert refused(run.ask(replace(opening, vectors=[claimed.to_bytes()])), "nothing of it is told")


@pytest.mark.parametrize("said", [0, 1])  # which of the models the server says it was
def test_clients_who_were_given_different_models_are_not_opened_together(target: Target, said: int) -> None:
    """All but one get a model from which nothing is learnt: the sum would be that one's update."""
    run = target.run()
    replies = run.replies()
    run.given(np.ones(1, np.float32))
    replies[0] = run.reply(0)
    run.given(np.full(1, said, np.float32))
    assert refused(run.ask(run.opening(replies)), NOTHING[target.keys])


def test_a_wrong_product_is_refused(target: Target) -> None:
    """Client 3's ciphertext twice, or multiplied, in place of client 2's: what is left would be its vector."""
    run = target.run()
    replies = run.replies()
    opening = run.opening(replies)
    bodies = [replies[0][1], replies[1][1], replies[3][1], replies[3][1]]
    if target.keys == "threshold":
        assert refused(run.ask(replace(opening, vectors=bodies)), "client 2 has not signed its ciphertexts")
        return
    assert refused(run.ask(replace(opening, vectors=[run.added(bodies).to_bytes()])), "nothing of it is told")


@pytest.mark.parametrize("made_of", ["this round", "an earlier round", "an earlier run", "twice", "a copy"])
def test_a_client_that_passes_off_what_others_sent_is_named(target: Target, made_of: str) -> None:
    """A server that has one client's help: what is left of the sum would be client 0's vector, or nearly."""
    if target.keys != "threshold":
        pytest.skip("an authority is shown sums only")
    identities = target.people.some()
    old = run_with(target.keys, target.remote, target.people, identities=identities)
    before = old.replies(2)
    run = run_with(target.keys, target.remote, target.people, identities=identities)
    first = run.replies(1)
    opens(run.ask(run.opening(first), 1), run.exact(range(4)))
    replies = run.replies(2)
    forged, proof = {
        "this round": lambda: less(run, [replies[1][1], replies[2][1]]),
        "an earlier round": lambda: less(run, [first[1][1], first[2][1]]),
        "an earlier run": lambda: less(run, [before[1][1], before[2][1]]),
        "twice": lambda: less(run, [replies[1][1]], times=2),
        "a copy": lambda: (replies[2][1], proof_of(replies[2])),
    }[made_of]()
    for shown in (proof, proof_of(replies[3]), proof_of(first[3]), proof_of(before[3])):
        given = run.ask(run.opening(passed_off(run, replies, forged, shown)), 2)
        assert refused(given, "client 3 has not proved that it knows what it encrypted")
    assert "client 3 has not proved" in last_refusal(target.serving)
    opens(run.ask(run.opening(replies), 2), run.exact(range(4)))


@pytest.mark.parametrize("whose", ["round", "client", "run", "key", "nobody", "later"])
def test_a_proof_that_was_made_for_something_else_is_refused(target: Target, whose: str) -> None:
    if target.keys != "threshold":
        pytest.skip("an authority needs no proofs")
    identities = target.people.some()
    before = run_with(target.keys, target.remote, target.people, identities=identities).replies(2)
    run = run_with(target.keys, target.remote, target.people, identities=identities)
    replies, key = run.replies(2), run.session.key
    stranger = paillier.generate(bits=256, insecure_key_size=True)[0]
    context = run.occasion(3, 2).of_block(0)
    zeros = np.zeros((layout(LENGTH, 256).rows, 32), np.uint8)
    rows = run.added([replies[3][1]]).rows
    answer = {"message": 5, "noise": 7}  # and a commitment that fits a challenge of its own choice
    product = key.ring.fold(key.ring.inverse(rows)) * (1 + 5 * key.n) * pow(key.h, 7, key.square) % key.square
    proof = {
        "round": lambda: proof_of(run.reply(3, 1)),
        "client": lambda: proof_of(replies[2]),
        "run": lambda: proof_of(before[3]),
        "key": lambda: encrypted(stranger, zeros, context, noise=KnownNoise(key=stranger))[1].to_bytes(stranger),
        "nobody": lambda: bytes(len(proof_of(replies[3]))),
        "later": lambda: Proof(commitment=product, **answer).to_bytes(key),
    }[whose]()
    given = run.ask(run.opening(passed_off(run, replies, replies[3][1], proof)), 2)
    assert isinstance(given, str)
    assert "client 3 has not proved" in given or "beyond the key's modulus" in given
    opens(run.ask(run.opening(replies), 2), run.exact(range(4)))


def test_an_invented_client_is_not_admitted(target: Target) -> None:
    run = target.run()
    stranger = read_identity(new_identity("nobody")[0], where="test")
    taken = run.identities[0]
    for identity in (stranger, taken, None):  # not on the list; one that counts already; none
        run.identities = {**run.identities, 9: identity} if identity else {c: run.identities[c] for c in range(4)}
        run.states.pop(9, None)
        run.vectors = [*run.vectors[:4], *([np.zeros(LENGTH, np.float32)] * 6)]
        for party, frame in run.admit(enrol(run, (9,))).items():
            if party == -1:
                assert unpack_clients(frame.body) == [9]
    assert refused(run.ask(run.opening({c: run.reply(c) for c in (0, 1, 9)})), "client 9 is not enrolled")


def test_a_client_that_nobody_enrolled_is_named(target: Target) -> None:
    run = target.run()
    replies = {**run.replies(), 77: run.reply(1)}
    assert refused(run.ask(run.opening(replies)), "client 77 is not enrolled in this run")


def test_an_enrolment_of_another_run_is_not_admitted(target: Target) -> None:
    run = target.run()
    stolen = run.session.enrolments
    again = target.run()
    told = Admission(challenges=list(again.session.challenges.values()), enrolments=stolen)
    assert unpack_clients(again.admit(told.to_bytes())[-1].body) == [0, 1, 2, 3]


def test_a_server_that_makes_up_the_challenges_is_refused(target: Target) -> None:
    run = target.run()
    told = Admission(challenges=[bytes(32)], enrolments=run.session.enrolments)
    assert run.admit(told.to_bytes())[-1].kind is wire.Kind.FAILURE


def test_a_sum_of_another_key_is_refused(target: Target) -> None:
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    run = target.run()
    opening = run.opening(run.replies())
    foreign = [stranger.encrypt(np.zeros(LENGTH), layout(LENGTH, 256)) for _ in range(4)]
    shown = [vector.to_bytes() for vector in foreign]
    lying = shown if target.keys == "threshold" else [paillier.total(foreign).to_bytes()]
    assert isinstance(run.ask(replace(opening, vectors=lying)), str)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"TCT",
        b"\xff" * 5000,
        wire.pack(wire.Kind.KEY, SETUP, b"")[:-1] + b"x",
        wire.pack(wire.Kind.TASK, SETUP, bytes(50)),
        wire.pack(wire.Kind.OPENED, SETUP, bytes(50)),
        wire.pack(wire.Kind.VECTOR, wire.Turn(round_number=2**32 - 1, attempt=65535), bytes(4)),
    ],
)
def test_what_is_no_request_to_a_key_holder_gets_a_code(target: Target, data: bytes) -> None:
    assert code_of(target.remote.ask(data)) is wire.Failure.REQUEST


@pytest.mark.parametrize("body", [b"", bytes(4), b"\xff" * 4, b"\xff" * 12, bytes(3) + b"\x09" + bytes(800)])
@pytest.mark.parametrize("kind", [wire.Kind.KEY, wire.Kind.ADMIT, wire.Kind.OPEN])
def test_requests_that_can_not_be_read_are_refused(target: Target, kind: wire.Kind, body: bytes) -> None:
    assert code_of(target.remote.ask(wire.pack(kind, wire.Turn(round_number=1), body))) is wire.Failure.REFUSED


def test_a_request_longer_than_any_honest_one_is_refused_before_it_is_received(target: Target) -> None:
    """Of 400 listed clients a block has a few megabytes, and an authority's sum may be of any length."""
    said = 2**27 if target.keys == "threshold" else 2**30 + 1
    header = Message().pieces()[0][:-8] + struct.pack(">Q", said)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(target.remote.socket))
        peer.sendall(header)
        assert Header.read(peer.recv(len(header), socket.MSG_WAITALL), largest=0).code is Code.TOO_LARGE
    assert not isinstance(target.run().open(range(4)), str)


def test_a_supernode_that_only_carries_frames_reaches_the_holder(target: Target) -> None:
    """The way of a deployment on Flower: tacit-socket in the node's config."""
    if target.keys == "threshold":
        pytest.skip("the same code")
    place = str(target.serving.folder / "socket")

    def carried(frame: bytes) -> bytes:
        answer = relay(Call(party=-1, frame=frame, node={"tacit-socket": place}, run={}, run_id=7))
        assert answer.seconds["recover"] > 0
        return answer.frame

    assert Introduction.read(4, carried(GREETING)).parties == (-1,)

    class Carried:
        def answer(self, frame: wire.Frame) -> bytes:
            return carried(wire.pack(frame.kind, frame.turn, frame.body))

    run = run_with(target.keys, Carried(), target.people)
    opens(run.open(range(4)), run.exact(range(4)))


def test_the_socket_is_for_its_owner_alone(target: Target) -> None:
    assert (target.serving.folder / "socket").stat().st_mode & 0o777 == 0o600
    assert target.serving.folder.stat().st_mode & 0o777 == 0o700


def test_nothing_of_the_key_lies_in_the_folder(target: Target) -> None:
    target.run().open(range(4))
    private, share = key_pair()[1], key_shares()[0]
    secrets = [private.p, private.q, share.secret]
    shapes = [f"{secret:x}".encode() for secret in secrets]
    shapes += [secret.to_bytes((secret.bit_length() + 7) // 8, "big") for secret in secrets]
    for path in target.serving.folder.iterdir():
        if path.is_file():
            data = path.read_bytes()
            assert not any(shape in data for shape in shapes), path
