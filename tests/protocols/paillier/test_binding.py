"""A server that lies: what it can have opened of ciphertexts that are bound to run, round and client."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.crypto import paillier, threshold
from tacit.crypto.paillier import CiphertextVector, Layout
from tacit.crypto.paillier.knowledge import encrypted
from tacit.crypto.paillier.vector import pack_slots
from tacit.crypto.ring import from_integers, not_below, random_below, to_integers
from tacit.crypto.threshold import PartialDecryption
from tacit.errors import CipherError
from tacit.flow import InProcessEngine, drive
from tacit.protocols.paillier import Caution, Rules, ShareHolder, binding, holders
from tacit.protocols.paillier.binding import Admission, Agreement, identified, shown_to_shares, unpack_clients
from tacit.protocols.paillier.client import Member
from tacit.protocols.paillier.holders import Holder
from tacit.protocols.paillier.session import SETUP
from tacit.protocols.signatures import SIGNATURE_BYTES
from tests.protocols.paillier.run import (
    KEYS,
    LENGTH,
    Run,
    enrol,
    holders_of,
    less,
    opens,
    passed_off,
    proof_of,
    refused,
    signed,
)
from tests.protocols.test_conformance import key_pair, layout

BOTH = pytest.mark.parametrize("keys", KEYS)
NOTHING = {"authority": "nothing of it is told", "threshold": "has not signed"}


@BOTH
def test_what_a_round_asked_for_is_opened_and_again_where_an_answer_was_lost(keys: str) -> None:
    run = Run(keys)
    for number in (1, 2, 6):
        opening = run.opening(run.replies(number))
        for _ in range(2):
            opens(run.ask(opening, number), run.exact(range(4)))


# The differencing attack


@BOTH
def test_a_part_of_a_rounds_sum_is_not_opened_as_another_round(keys: str) -> None:
    """The review's attack: the sum of four as round 1 and of three of them as round 2 gave client 3's vector."""
    run = Run(keys)
    replies = run.replies()
    opens(run.ask(run.opening(replies), 1), run.exact(range(4)))
    del replies[3]
    assert refused(run.ask(run.opening(replies), 2), NOTHING[keys])


@BOTH
def test_no_ciphertext_is_opened_in_any_other_round(keys: str) -> None:
    """The review went on with 37 more openings of the same ciphertexts."""
    run = Run(keys, rules=Rules(minimum_clients=3, rounds=60))
    replies = run.replies()
    for left_out in range(37):
        some = {client: reply for client, reply in replies.items() if client != left_out % 5}
        assert isinstance(run.ask(run.opening(some), 2 + left_out), str)


@BOTH
def test_a_part_of_a_round_is_not_opened_after_the_whole(keys: str) -> None:
    run = Run(keys)
    replies = run.replies()
    run.ask(run.opening(replies))
    del replies[3]
    assert refused(run.ask(run.opening(replies)), "a second sum for round 1")
    assert refused(run.ask(run.opening(replies), 1, attempt=1), NOTHING[keys] if keys == "threshold" else "a second")


@BOTH
def test_another_try_of_a_round_is_not_opened_with_the_first_ones_ciphertexts(keys: str) -> None:
    run = Run(keys)
    assert refused(run.ask(run.opening(run.replies(1, 0)), 1, attempt=1), NOTHING[keys])


@BOTH
def test_a_client_that_answers_a_turn_twice_is_bound_twice(keys: str) -> None:
    """Two replies of one turn: their masks are independent, so the one that was not listed stays hidden."""
    run = Run(keys)
    first, second = run.replies(), run.replies()
    assert all(first[client][0] != second[client][0] for client in first)
    mixed = {**first, 3: (first[3][0], second[3][1])}
    assert refused(run.ask(run.opening(mixed)), NOTHING[keys])
    other = {**first, 3: second[3]}
    answers = [run.ask(run.opening(replies)) for replies in (other, first)]
    assert sum(not isinstance(answer, str) for answer in answers) <= 1


# New runs


@BOTH
def test_a_run_that_begins_anew_opens_nothing_of_the_last_one(keys: str) -> None:
    """The review's attack: a new run id made the holder forget which sums it had opened."""
    run = Run(keys)
    replies = run.replies()
    run.ask(run.opening(replies))
    del replies[3]
    for holder in run.holders.values():
        holder.answer(wire.unpack(wire.pack(wire.Kind.KEY, SETUP, b"")))
    assert refused(run.ask(run.opening(replies)), "not enrolled in this run")
    old = Admission(challenges=list(run.session.challenges.values()), enrolments=run.session.enrolments)
    assert all(frame.kind is wire.Kind.FAILURE for frame in run.admit(old.to_bytes()).values())
    assert refused(run.ask(run.opening(replies)), "not enrolled in this run")


@BOTH
def test_enrolments_of_one_run_are_not_admitted_in_another(keys: str) -> None:
    run = Run(keys)
    again = Run(keys, clients=0, holders=run.holders)
    stolen = Admission(challenges=list(again.session.challenges.values()), enrolments=run.session.enrolments)
    for frame in run.admit(stolen.to_bytes()).values():
        assert unpack_clients(frame.body) == [0, 1, 2, 3]
    assert refused(run.ask(run.opening(run.replies())), "not enrolled in this run")


@BOTH
def test_ciphertexts_of_one_run_are_not_opened_in_another_with_the_same_clients(keys: str) -> None:
    run = Run(keys)
    replies = run.replies()
    again = Run(keys, holders=run.holders)
    assert refused(again.ask(again.opening(replies)), NOTHING[keys])


@BOTH
def test_a_holder_that_lost_its_memory_opens_nothing_of_what_it_forgot(keys: str) -> None:
    run = Run(keys)
    replies = run.replies()
    run.ask(run.opening(replies))
    del replies[3]
    run.holders = dict(holders_of(keys, Caution(rules=run.rules, layout=layout)))
    assert refused(run.ask(run.opening(replies)), "not enrolled in this run")


@BOTH
def test_a_swapped_holder_is_of_no_use(keys: str) -> None:
    """One holder of another run in place of this run's: it knows other secrets, or none."""
    run, other = Run(keys), Run(keys)
    run.holders[-1] = other.holders[-1]
    if keys == "threshold":
        run.holders = {-1: other.holders[-1], -2: run.holders[-2]}
    given = run.ask(run.opening(run.replies()))
    assert isinstance(given, str)


# What a holder was told


@BOTH
@pytest.mark.parametrize("number", [0, 7, 4_000_000_000])
def test_a_round_that_the_run_does_not_have_is_not_opened(keys: str, number: int) -> None:
    run = Run(keys)
    request, replies = run.task(number, told=run.check.seed), {}
    for client in range(4):  # made by clients that would answer such a task
        member = Member.from_bytes(run.states[client])
        use, noise = run.protocol.keys, binding.noise_of(run.session.key, run.protocol.keys)
        body = member.reply(run.vectors[client], layout(LENGTH, 256), request, use, run.rules, noise)
        replies[client] = run.parted(b"".join(body))
    assert refused(run.ask(run.opening(replies), number), "expected a round from 1 to 6")


@BOTH
def test_a_sum_of_one_is_not_opened_whatever_the_settings_say(keys: str) -> None:
    """``federate.minimum_clients=1`` in the server's settings."""
    run = Run(keys, rules=Rules(minimum_clients=1, rounds=6))
    assert refused(run.open([2]), "a sum of 1 vectors was not opened, expected at least 2")
    opens(run.open([2, 3]), run.exact([2, 3]))
    allowed = Run(keys, rules=Rules(minimum_clients=1, rounds=6), floor=1)  # by the holder's own operator
    opens(allowed.open([2]), allowed.exact([2]))


@BOTH
@pytest.mark.parametrize("told", [Rules(minimum_clients=2, rounds=6), Rules(minimum_clients=3, rounds=600)])
def test_a_holder_that_was_told_other_rules_than_the_clients_admits_nobody(keys: str, told: Rules) -> None:
    """Clients size their noise for the smallest sum; a server that tells holders of a smaller one gets nowhere."""
    run = Run(keys, told=told)
    assert not run.session.members(range(4))
    assert refused(run.open([0, 1, 2]), "not enrolled")


@BOTH
def test_rules_can_not_be_changed_during_a_run(keys: str) -> None:
    run = Run(keys)
    lower = Rules(minimum_clients=2, rounds=6)
    memories = {party: holder.memory for party, holder in run.holders.items()}
    for party in run.holders:
        run.holders[party] = holders_of(keys, Caution(rules=lower, layout=layout, memory=memories[party]))[party]
    assert refused(run.open([0, 1]), "the run began with")


# Sums that are none


def test_rows_of_two_rounds_are_not_opened_together() -> None:
    run = Run("authority")
    first, second = run.opening(run.replies(1)), run.opening(run.replies(2))
    rows = run.added([bytes(first.vectors[0])]).rows.copy()
    rows[0] = run.added([bytes(second.vectors[0])]).rows[0]
    forged = replace(run.added([bytes(first.vectors[0])]), rows=rows).to_bytes()
    assert refused(run.ask(replace(first, vectors=[forged])), "nothing of it is told")


def test_rows_in_another_order_are_not_opened() -> None:
    run = Run("authority")
    opening = run.opening(run.replies())
    vector = run.added([bytes(opening.vectors[0])])
    forged = replace(vector, rows=vector.rows[::-1].copy()).to_bytes()
    assert refused(run.ask(replace(opening, vectors=[forged])), "nothing of it is told")


@pytest.mark.parametrize("factors", [(2, 1, 1, 1), (1, 1, 1, 0), (4, 0, 0, 0), (0, 0, 0, 1), (5, 1, 1, -1)])
def test_a_sum_with_other_factors_than_one_is_not_opened(factors: tuple[int, ...]) -> None:
    """Scaled, left out, or one client's alone, with truthful lists and counts: a mask is left over."""
    run = Run("authority")
    replies, ring = run.replies(), run.session.key.ring
    vectors = [run.added([body]) for _, body in replies.values()]
    powers = [ring.power(v.rows, abs(f), secret=False) for v, f in zip(vectors, factors, strict=True)]
    rows = ring.product([ring.inverse(p) if f < 0 else p for p, f in zip(powers, factors, strict=True)])
    forged = replace(vectors[0], rows=rows, summands=4).to_bytes()
    assert refused(run.ask(replace(run.opening(replies), vectors=[forged])), "nothing of it is told")


def test_what_is_left_of_a_forged_sum_is_uniform_and_so_tells_nothing() -> None:
    """Even an authority that told what it found would tell no number: the mask of client 3 is left over."""
    run = Run("authority", clients=4)
    key, private = key_pair()
    found = []
    for _ in range(40):
        replies = run.replies()
        rows = run.added([body for _, body in replies.values()]).rows
        turn = wire.Turn(round_number=1)
        secrets = [_secret(run, client) for client in range(3)]
        digest, count = run.check.digest, len(rows) + 1
        masks = [binding.masks(s, turn, replies[c][0], digest, key, count)[:-1] for c, s in enumerate(secrets)]
        found += to_integers(binding.unmasked(private.open(rows), masks, key))
    shares = np.array([number / key.n for number in found])
    assert len(set(found)) == len(found) == 120
    assert abs(shares.mean() - 0.5) < 4 / np.sqrt(12 * len(shares))
    assert abs((shares < 0.25).mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / len(shares))


def _secret(run: Run, client: int) -> bytes:
    member = Member.from_bytes(run.states[client])
    return Agreement.of(member.secret, member.key, binding.statement(run.session.run, client, run.rules)).secret


@BOTH
def test_a_client_can_not_be_listed_twice(keys: str) -> None:
    run = Run(keys)
    seal, body = run.reply(2)
    size = 3
    seals = (struct.pack(">Q", 2) + (seal[:96] if keys == "threshold" else seal)) * size
    doubled = run.added([body]) * size
    shown = bytes(32) + layout(LENGTH, 256).to_bytes() + bytes(8) + body * size
    vectors = shown if keys == "threshold" else doubled.to_bytes()
    request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=1), struct.pack(">I", size) + seals + vectors)
    for holder in run.holders.values():
        frame = wire.unpack(holder.answer(wire.unpack(request)))
        assert frame.kind is wire.Kind.FAILURE
        assert "client 2 twice" in wire.unpack_failure(frame)[1]


@BOTH
def test_a_client_can_not_be_enrolled_under_two_numbers(keys: str) -> None:
    """Its double would count as a second client, and their sum is twice its vector."""
    run = Run(keys, rules=Rules(minimum_clients=2, rounds=6))
    twin = Admission(challenges=list(run.session.challenges.values()), enrolments={9: run.session.enrolments[2]})
    for frame in run.admit(twin.to_bytes()).values():
        assert unpack_clients(frame.body) == [9]
    seal, body = run.reply(2)
    vectors = [body, body] if keys == "threshold" else [(run.added([body]) * 2).to_bytes()]
    opening = replace(run.opening({2: (seal, body)}), seals={2: seal, 9: seal}, vectors=vectors)
    assert refused(run.ask(opening), "client 9 is not enrolled")


@BOTH
def test_a_seal_that_the_server_invents_opens_nothing(keys: str) -> None:
    run = Run(keys)
    opening = run.opening(run.replies())
    seals = {**opening.seals, 3: bytes(len(opening.seals[3]))}
    assert refused(run.ask(replace(opening, seals=seals)), NOTHING[keys])


@BOTH
def test_a_list_of_other_clients_than_the_sums_opens_nothing(keys: str) -> None:
    run = Run(keys)
    replies = run.replies()
    opening = run.opening({client: replies[client] for client in (0, 1, 2)})
    seals = {client: replies[client][0] for client in (0, 1, 3)}
    assert refused(run.ask(replace(opening, seals=seals)), NOTHING[keys])


@BOTH
def test_a_ciphertext_that_is_a_sum_is_no_clients(keys: str) -> None:
    run = Run(keys)
    replies = {client: run.reply(client) for client in range(3)}
    opening = run.opening(replies)
    seals = dict(opening.seals)
    if keys == "authority":
        seals[3] = run.reply(3)[0]  # four are named, and three were added
    else:
        doubled, proof = (run.added([replies[2][1]]) * 2).to_bytes(), proof_of(replies[2])
        seals[2] = signed(run, 2, 1, proof, doubled) + proof  # it helps the server
        opening = replace(opening, vectors=[*opening.vectors[:2], doubled])
    assert refused(run.ask(replace(opening, seals=seals)), "summands" if keys == "authority" else "has not proved")


# Enrolments that are none


def test_a_clients_update_is_not_accepted_as_an_enrolment() -> None:
    """The authority takes roots of enrolments: it must not do so for whoever wants to know one."""
    run = Run("authority")
    width = (run.session.key.bits + 7) // 8
    noise = int.from_bytes(run.added([run.reply(0)[1]]).rows[0].tobytes(), "big") % run.session.key.n
    for tag in (bytes(32), run.session.enrolments[1][width:]):
        assert _turned_away(run, noise.to_bytes(width, "big") + tag)
    assert sorted(run.holders[-1]._register.members) == [0, 1, 2, 3]


def test_an_enrolment_can_not_be_changed_into_one_that_is_related() -> None:
    """Powers are malleable: that of 2 rho from that of rho. No tag but rho's own is known, for another client's."""
    run = Run("authority", clients=3)
    n = run.session.key.n
    width = (n.bit_length() + 7) // 8
    power, tag = int.from_bytes(run.session.enrolments[1][:width], "big"), run.session.enrolments[1][width:]
    for changed in (power, power * pow(2, n, n) % n, n - power, pow(power, -1, n), 0, 1):
        assert _turned_away(run, changed.to_bytes(width, "big") + tag)


def _turned_away(run: Run, enrolment: bytes) -> bool:
    admission = Admission(challenges=list(run.session.challenges.values()), enrolments={9: enrolment})
    (frame,) = run.admit(admission.to_bytes()).values()
    return unpack_clients(frame.body) == [9]


def test_an_enrolment_in_a_sum_tells_nothing_of_the_masks() -> None:
    """The server has clients train what gives zeros, so that it knows the sum, and adds an enrolment to a row of it.

    Where slots fill a row, most numbers pass for a sum. What is opened less the known sum must not be what the client
    and the authority share: who has all secrets of a list opens any client's vector in the next round.
    """
    run = Run("authority", rules=Rules(minimum_clients=3, rounds=60))
    run.holders[-1]._caution = replace(run.holders[-1]._caution, layout=None)
    filled = Layout(length=30, bound=(1 << 14) - 1, summands=4, key_bits=256)
    assert (filled.rows, filled.slots * filled.slot_bits) == (2, 255)
    key, zeros, sent = run.session.key, np.zeros(filled.length, np.int64), run.session.enrolments[3]
    known = to_integers(filled.encode(zeros)[0])[0] * 4
    guesses: list[int] = []
    for number in range(1, 61):
        turn, replies = wire.Turn(round_number=number), {}
        for client in range(4):
            member = Member.from_bytes(run.states[client])
            body = member.reply(zeros, filled, run.task(number, told=run.check.seed), "authority", run.rules, key)
            replies[client] = run.parted(b"".join(body))
        opening = run.opening(replies)
        vector = run.added([bytes(opening.vectors[0])])
        hidden = [pow(int.from_bytes(part, "big"), number, key.square) for part in (sent, sent[: (key.bits + 7) // 8])]
        less = 1 - key.n * known
        rows = [row * less * more % key.square for row, more in zip(to_integers(vector.rows), hidden, strict=True)]
        forged = replace(vector, rows=from_integers(rows, key.ring.width)).to_bytes()
        request = wire.pack(wire.Kind.OPEN, turn, replace(opening, vectors=[forged]).to_bytes())
        frame = wire.unpack(run.holders[-1].answer(wire.unpack(request)))
        if frame.kind is wire.Kind.OPENED:
            slots = (
                (np.frombuffer(frame.body[: 8 * filled.length], "<i8") + 4 * filled.bound)
                .astype(np.uint64)
                .reshape(2, -1)
            )
            opened = to_integers(pack_slots(slots, filled.slot_bits, 32))
            guesses += [some * pow(number, -1, key.n) % key.n for some in opened]
    assert guesses
    stated = binding.statement(run.session.run, 3, run.rules)
    assert all(Agreement.on(guess, key, stated).secret != _secret(run, 3) for guess in guesses)


@BOTH
def test_who_came_first_under_a_number_stays(keys: str) -> None:
    """The server can't put a key of its own in the place of a client's during the run."""
    run = Run(keys)
    replaced = Admission(challenges=list(run.session.challenges.values()), enrolments={2: _invented(run, 2)})
    for frame in run.admit(replaced.to_bytes()).values():
        assert unpack_clients(frame.body) == [2]
    opens(run.open([1, 2, 3]), run.exact([1, 2, 3]))


def _invented(run: Run, client: int, identity: Ed25519PrivateKey | None = None) -> bytes:
    """Return an enrolment that the server makes itself."""
    stated = binding.statement(run.session.run, client, run.rules)
    body = shown_to_shares(bytes(32), stated)
    if run.keys == "authority":
        body = Agreement.of(bytes(32), run.session.key, stated).enrolment
    return body if identity is None else identified(body, stated, identity)


@BOTH
@pytest.mark.parametrize("kind", ["zero", "beyond", "factor", "short", "long", "empty"])
def test_a_forged_enrolment_is_refused_and_the_others_are_admitted(keys: str, kind: str) -> None:
    key = key_pair()[0]
    width = (key.bits + 7) // 8 + 32
    wrong = {
        "zero": bytes(width),
        "beyond": b"\xff" * width,
        "factor": key_pair()[1].p.to_bytes(width - 32, "big") + bytes(32),
        "short": bytes(5),
        "long": bytes(width + 1),
        "empty": b"",
    }[kind]
    run = Run(keys, clients=0)
    right = {client: _invented(run, client) for client in range(3)}
    admission = Admission(challenges=list(run.session.challenges.values()), enrolments={**right, 7: wrong})
    for frame in run.admit(admission.to_bytes()).values():
        assert (frame.kind, unpack_clients(frame.body)) == (wire.Kind.ADMIT, [7])


@BOTH
@pytest.mark.parametrize("body", [b"", b"\x00", b"\xff" * 4, bytes(4) + b"\x01", bytes(4) + b"\x00" * 8 + b"\xff" * 4])
def test_an_admission_that_can_not_be_read_is_refused(keys: str, body: bytes) -> None:
    run = Run(keys)
    assert all(frame.kind is wire.Kind.FAILURE for frame in run.admit(body).values())


@BOTH
@pytest.mark.parametrize("body", [b"", b"\x00" * 4, b"\xff" * 4, b"\x00\x00\x00\x01", b"\x00\x00\x00\x02" + bytes(300)])
def test_an_opening_that_can_not_be_read_is_refused(keys: str, body: bytes) -> None:
    run = Run(keys)
    request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=1), body)
    assert all(wire.unpack(h.answer(wire.unpack(request))).kind is wire.Kind.FAILURE for h in run.holders.values())


# Clients that a server invents


@BOTH
def test_invented_clients_are_not_admitted_where_the_holder_knows_the_true_ones(keys: str) -> None:
    true = {client: Ed25519PrivateKey.generate() for client in range(4)}
    known = frozenset(identity.public_key().public_bytes_raw() for identity in true.values())
    holders = holders_of(keys, Caution(rules=Rules(minimum_clients=3, rounds=6), layout=layout, clients=known))
    run = Run(keys, holders=holders, identities=true)
    opens(run.open([0, 1, 2]), run.exact([0, 1, 2]))
    invented = {
        8: _invented(run, 8),
        9: _invented(run, 9, Ed25519PrivateKey.generate()),
        10: _invented(run, 10, true[1]),  # client 1 helps the server, and would count twice
    }
    admission = Admission(challenges=list(run.session.challenges.values()), enrolments=invented)
    for frame in run.admit(admission.to_bytes()).values():
        assert unpack_clients(frame.body) == [8, 9, 10]


@BOTH
def test_an_identity_does_not_vouch_for_what_another_client_sent(keys: str) -> None:
    true = Ed25519PrivateKey.generate()
    holders = holders_of(
        keys,
        Caution(rules=Rules(minimum_clients=3, rounds=6), clients=frozenset([true.public_key().public_bytes_raw()])),
    )
    run = Run(keys, clients=0, holders=holders)
    vouched, other = _invented(run, 0, true), _invented(run, 1, true)
    grafted = _invented(run, 0) + other[-96:]
    for body, admitted in ((grafted, False), (vouched, True)):
        admission = Admission(challenges=list(run.session.challenges.values()), enrolments={0: body})
        for frame in run.admit(admission.to_bytes()).values():
            assert (unpack_clients(frame.body) == []) is admitted


@BOTH
def test_without_a_list_the_guarantee_is_only_as_good_as_the_clients_that_enrolled(keys: str) -> None:
    """What does not hold: a server that may invent clients sees what is left of a sum without them."""
    run = Run(keys)
    run.vectors += [np.zeros(LENGTH, np.float32)] * 2  # clients 4 and 5 are the server's
    run.admit(enrol(run, (4, 5)))
    opens(run.open([2, 4, 5]), run.vectors[2])


@BOTH
def test_a_client_that_was_started_anew_comes_back_with_its_identity_and_not_without(keys: str) -> None:
    for identities in ({1: Ed25519PrivateKey.generate()}, {}):
        run = Run(keys, identities=identities)
        run.states[1] = b""  # what a node forgets when it is started anew
        run.session.forget(1)
        drive(run.ready.setup(range(4)), InProcessEngine(answer=run.answer))
        assert (1 in run.session.members(range(4))) is bool(identities)
        if identities:
            opens(run.open([0, 1, 2]), run.exact([0, 1, 2]))


# Masks


def test_masks_differ_by_everything_they_are_made_of() -> None:
    key, secret, turn = key_pair()[0], bytes(32), wire.Turn(round_number=1)
    nonce, digest = bytes(16), bytes(32)
    usual = binding.masks(secret, turn, nonce, digest, key, 3)
    others = [
        binding.masks(b"\x01" + bytes(31), turn, nonce, digest, key, 3),
        binding.masks(secret, wire.Turn(round_number=2), nonce, digest, key, 3),
        binding.masks(secret, wire.Turn(round_number=1, attempt=1), nonce, digest, key, 3),
        binding.masks(secret, turn, b"\x01" + bytes(15), digest, key, 3),
        binding.masks(secret, turn, nonce, b"\x01" + bytes(31), key, 3),
        binding.masks(secret, turn, nonce, digest, key, 4)[:3],
    ]
    assert not any((other == usual).all(axis=1).any() for other in others)
    assert (binding.masks(secret, turn, nonce, digest, key, 3) == usual).all()
    assert len({row.tobytes() for row in usual}) == 3
    assert len(not_below(usual, key.n)) == 3  # wider than n, so that they are uniform modulo n


# Key holders that help the server


def _two_sums(needed: int, holders: int) -> int:
    """Return how many of two sums of one round are opened with one key holder that gives parts of anything."""
    shares = threshold.generate(shares=holders, threshold=needed, bits=256, insecure_key_size=True)[1]
    caution = Caution(rules=Rules(minimum_clients=3, rounds=6), layout=layout)
    parties: dict[int, Holder] = {-s.index: ShareHolder(share=s, caution=caution) for s in shares}
    run = Run("threshold", holders=parties, needed=needed)
    replies = run.replies()
    whole, part = run.opening(replies), run.opening({c: replies[c] for c in range(3)})
    turn = wire.Turn(round_number=1)
    opened = 0
    honest = sorted(parties)[1:]
    for opening, asked in ((whole, honest[: needed - 1]), (part, honest[needed - 1 :])):
        product = run.added([bytes(body) for body in opening.vectors])
        parts = [shares[holders - 1].partial(product)]  # the liar's, of either sum
        request = wire.pack(wire.Kind.OPEN, turn, opening.to_bytes())
        frames = [wire.unpack(parties[party].answer(wire.unpack(request))) for party in asked]
        public = shares[0].public
        parts += [PartialDecryption.from_bytes(f.body, public) for f in frames if f.kind is wire.Kind.OPENED]
        opened += len(parts) >= needed and not isinstance(public.combine(product, parts[:needed]).value, str)
    return opened


@pytest.mark.parametrize(("needed", "holders", "opened"), [(2, 3, 2), (3, 4, 1)])
def test_a_lying_key_holder_opens_two_sums_of_a_round_only_where_it_alone_is_in_both_groups(
    needed: int, holders: int, opened: int
) -> None:
    """What does not hold, and is stated: of 2 in 3 one liar is enough; of 3 in 4 it takes two (2t - l)."""
    assert _two_sums(needed, holders) == opened


# Different models for different clients


@BOTH
@pytest.mark.parametrize("said", [0, 1])  # which of the models the server says it was
def test_clients_who_were_given_different_models_are_not_opened_together(keys: str, said: int) -> None:
    """From one model nothing is learnt, and updates are zero: the sum would be that of the client with the other."""
    run = Run(keys)
    replies = run.replies()
    run.given(np.ones(1, np.float32))
    replies[0] = run.reply(0)
    run.given(np.full(1, said, np.float32))
    assert refused(run.ask(run.opening(replies)), NOTHING[keys])


@BOTH
@pytest.mark.parametrize("said", [b"", b"learn nothing"])  # which of the settings the server says it was
def test_clients_who_were_given_different_settings_are_not_opened_together(keys: str, said: bytes) -> None:
    """A rate of zero, as the server told all clients but one: their updates are zero."""
    run = Run(keys)
    replies = run.replies()
    run.protocol = replace(run.protocol, settings=b"learn nothing")
    replies[0] = run.reply(0)
    run.protocol = replace(run.protocol, settings=said)
    run.given(run.model)
    assert refused(run.ask(run.opening(replies)), NOTHING[keys])


def test_a_reply_is_bound_to_the_model_and_to_what_the_mechanism_says() -> None:
    task = wire.Task(turn=wire.Turn(round_number=1), model=np.arange(3, dtype=np.float32), extras=b"clip", told=b"a")
    others = [
        replace(task, told=b"b"),  # what the protocol says is bound by the protocol
        replace(task, model=np.zeros(3, np.float32)),
        replace(task, model=task.model[:2]),
        replace(task, extras=b"cli"),
        replace(task, extras=b""),
    ]
    asked = [wire.unpack(wire.pack_task(one)).asked for one in (task, *others)]
    assert asked[0] == asked[1]
    assert len(set(asked)) == len(others)
    assert asked == [one.asked for one in (task, *others)]


# Clients that help the server


@pytest.mark.parametrize(
    "made_of", ["this round", "an earlier round", "an earlier run", "twice", "a copy", "a blinded copy"]
)
def test_nobody_is_taken_out_of_a_sum_by_a_client_that_passes_off_what_others_sent(made_of: str) -> None:
    """Of a sum of four, of which three are honest, client 0's vector would be left, or nearly."""
    old = Run("threshold")
    before = old.replies()
    run = Run("threshold", holders=old.holders)
    first = run.replies(1)
    opens(run.ask(run.opening(first), 1), run.exact(range(4)))
    replies = run.replies(2)
    forged, proof = {
        "this round": lambda: less(run, [replies[1][1], replies[2][1]]),
        "an earlier round": lambda: less(run, [first[1][1], first[2][1]]),
        "an earlier run": lambda: less(run, [before[1][1], before[2][1]]),
        "twice": lambda: less(run, [replies[1][1]], times=2),
        "a copy": lambda: (replies[2][1], proof_of(replies[2])),
        "a blinded copy": lambda: (run.added([replies[2][1]]).rerandomised().to_bytes(), proof_of(replies[2])),
    }[made_of]()
    for shown in (proof, proof_of(replies[3]), proof_of(first[3]), proof_of(replies[1]), proof_of(before[3])):
        given = run.ask(run.opening(passed_off(run, replies, forged, shown)), 2)
        assert refused(given, "client 3 has not proved that it knows what it encrypted")
    opens(run.ask(run.opening(replies), 2), run.exact(range(4)))


@pytest.mark.parametrize("made_of", ["this round", "an earlier round"])
def test_without_proofs_one_such_client_gives_away_another(made_of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the proofs are for: a signature does not show that a client knows what it has encrypted."""
    run = Run("threshold")
    first, replies = run.replies(1), run.replies(2)
    theirs = replies if made_of == "this round" else first  # the same vectors, as where a model hardly moves
    forged, proof = less(run, [theirs[1][1], theirs[2][1]])
    monkeypatch.setattr(holders, "unproved", lambda *_, **__: [])
    opens(run.ask(run.opening(passed_off(run, replies, forged, proof)), 2), run.exact([0]))


@pytest.mark.parametrize("whose", ["round", "try", "client", "run", "key", "zeros", "ones"])
def test_a_clients_own_ciphertext_needs_its_own_proof(whose: str) -> None:
    old = Run("threshold")
    before = old.replies(2)
    run = Run("threshold", holders=old.holders)
    replies = run.replies(2)
    size = len(proof_of(replies[3]))
    stranger = paillier.generate(bits=256, insecure_key_size=True)[0]
    context = run.occasion(3, 2).of_block(0)
    rows = random_below(1 << 200, layout(LENGTH, 256).rows)
    proof = {
        "round": lambda: proof_of(run.reply(3, 1)),
        "try": lambda: proof_of(run.reply(3, 2, 1)),
        "client": lambda: proof_of(replies[2]),
        "run": lambda: proof_of(before[3]),
        "key": lambda: encrypted(stranger, rows, context, noise=binding.noise_of(stranger, "threshold"))[1].to_bytes(
            stranger
        ),
        "zeros": lambda: bytes(size),
        "ones": lambda: b"\xff" * size,
    }[whose]()
    given = run.ask(run.opening(passed_off(run, replies, replies[3][1], proof)), 2)
    assert isinstance(given, str)
    assert "has not proved" in given or "has a number beyond the key's modulus" in given
    unsigned = {**replies, 3: (replies[3][0][:SIGNATURE_BYTES] + proof, replies[3][1])}
    assert refused(run.ask(run.opening(unsigned), 2), "client 3 has not signed")


def test_a_vector_that_a_client_knows_may_be_anything_and_tells_nothing() -> None:
    """What a proof does not do: the numbers may be far beyond the layout. The others' sum is all that is learnt."""
    run = Run("threshold")
    key, form = run.session.key, layout(LENGTH, 256)
    own = random_below(key.n, form.rows)
    context = run.occasion(3, 2).of_block(0)
    rows, proof = encrypted(key, own, context, noise=binding.noise_of(key, "threshold"))
    forged = CiphertextVector(key=key, layout=form, summands=1, rows=rows).to_bytes()
    replies = passed_off(run, run.replies(2), forged, proof.to_bytes(key))
    with pytest.raises(CipherError, match="can't be one"):  # poisoned: an honest server uses nothing of it
        run.ask(run.opening(replies), 2)


@pytest.mark.parametrize("made_of", [1, 2])
def test_under_an_authoritys_masks_such_a_client_gives_away_nothing(made_of: int) -> None:
    """Its masks come off, and those of the clients who were taken away are left, of whichever round they are."""
    run = Run("authority")
    theirs, replies = run.replies(made_of), run.replies(2)
    forged, _ = less(run, [theirs[1][1], theirs[2][1]])
    replies[3] = replies[3][0], forged
    assert refused(run.ask(run.opening(replies), 2), NOTHING["authority"])
