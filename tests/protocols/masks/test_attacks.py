"""A server that lies: every attack is played against clients that keep to the protocol, refused, and named by them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.errors import DropoutError, SpoiledError
from tacit.flow import ClientId, Frames, only
from tacit.protocols.masks import Field, secrets
from tacit.protocols.masks.client import ClientHalf
from tacit.protocols.masks.graph import Circle, Members, pack_clients, pack_members
from tacit.protocols.masks.member import Member, keys_digest, statement_of
from tacit.protocols.masks.secrets import ENTRY_BYTES, SEALED_BYTES, Identity
from tacit.wire import Kind, Turn
from tests.protocols.masks.run import Federation, clear_sum, losing, masked, reason, task, vectors

VICTIM = 0
TURN = Turn(round_number=1)


def _until(kind: Kind, *, clients: int = 6, signed: bool = True, minimum: int = 4, **changes: Any) -> Federation:
    """Return a federation that has done everything before a kind of request, and lost all answers to it."""
    protocol = masked(minimum=minimum, signed=signed, **changes)
    federation = Federation(protocol, vectors(range(clients)), before=lambda k, r: {} if k is kind else r)
    with pytest.raises(DropoutError):
        federation.sum(task())
    federation.before = losing({})
    return federation


def _members(clients: int, gone: Iterable[int] = ()) -> Members:
    members = np.ones(clients, np.bool_)
    members[list(gone)] = False
    return members


def _list(federation: Federation, client: ClientId, gone: Iterable[int]) -> bytes:
    """Show a client a list to sign."""
    listed = pack_members(_members(len(federation.vectors), gone))
    return federation.step(client, wire.pack(Kind.LIST, TURN, listed))


def _reveal(federation: Federation, client: ClientId, gone: Iterable[int], signatures: dict[int, bytes]) -> bytes:
    """Ask a client to reveal, with every share that was sealed for it."""
    n = len(federation.vectors)
    state = Member.from_bytes(federation.states[client])
    circle = Circle.drawn(state.circle, federation.protocol.hood(n))
    dealt = {c: bytes(wire.unpack(reply).body)[64:] for kind, c, reply in federation.replies if kind is Kind.SHARE}
    k, width = circle.hood.neighbours, 32 + SEALED_BYTES + 32
    seals = [
        dealt[int(dealer)][(k - 1 - point) * width + 32 :][:SEALED_BYTES]
        for point, dealer in enumerate(circle.neighbours(client))
    ]
    session = federation.protocol.session
    assert session is not None
    keys = b"".join(session.entries[c][32:64] for c in sorted(federation.vectors))
    proof = pack_members(_members(n, set(range(n)) - signatures.keys())) + keys
    proof += b"".join(signatures[c] for c in sorted(signatures))
    body = pack_members(_members(n, gone)) + b"".join(seals) + (proof if federation.protocol.signed else b"")
    return federation.step(client, wire.pack(Kind.REVEAL, TURN, body))


def _refused(frame: bytes, *, words: str, code: wire.Failure | None = None) -> None:
    found = wire.unpack(frame)
    assert found.kind is Kind.FAILURE
    assert words in reason(frame)
    assert code is None or wire.unpack_failure(found)[0] is code


# Different models


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("others", [False, True])
def test_clients_who_were_given_different_models_stay_hidden(signed: bool, others: bool) -> None:
    """From one model nothing is learnt, and updates are zero: the sum would be the victim's, who was given another."""

    def another(kind: Kind, requests: Frames) -> Frames:
        if kind is not Kind.TASK:
            return requests
        given = {c: wire.unpack_task(wire.unpack(request)) for c, request in requests.items()}
        return {
            c: wire.pack_task(replace(one, model=one.model + 1)) if (c == VICTIM) is not others else requests[c]
            for c, one in given.items()
        }

    shown = vectors(range(6), length=60)
    shown |= {client: np.zeros(60, np.int64) for client in shown if client != VICTIM}
    protocol = masked(minimum=4, signed=signed)
    assert (Federation(protocol, shown).sum(task()).vector == shown[VICTIM]).all()  # what is at stake
    with pytest.raises(SpoiledError, match="The sum of 6 clients can't be one"):
        Federation(protocol, shown, meddles=another).sum(task())


@pytest.mark.parametrize("signed", [False, True])
def test_clients_who_were_given_different_settings_stay_hidden(signed: bool) -> None:
    """A rate of zero, as the server told all clients but the victim: their updates are zero."""
    protocol, shown = masked(minimum=4, signed=signed), vectors(range(6), length=60)
    halves = {client: replace(protocol, settings=b"learn nothing") for client in shown if client != VICTIM}
    for own in (protocol, halves[1]):  # whichever the server has
        with pytest.raises(SpoiledError, match="The sum of 6 clients can't be one"):
            Federation(own, shown, halves=halves | {VICTIM: protocol}).sum(task())


# Different lists


def test_two_lists_in_one_round_are_refused_by_whoever_sees_both() -> None:
    federation = _until(Kind.LIST)
    assert wire.unpack(_list(federation, 1, gone=[5])).kind is Kind.LIST
    assert wire.unpack(_list(federation, 1, gone=[5])).kind is Kind.LIST  # the same again: an answer may be lost
    _refused(_list(federation, 1, gone=[4]), words="another list", code=wire.Failure.CHANGED)
    _refused(_reveal(federation, 1, [4], {}), words="another list")


def test_different_lists_to_two_groups_open_nothing() -> None:
    """One group is told that the victim is in the sum, the other that it dropped out: no list has enough signatures."""
    federation = _until(Kind.LIST)
    with_victim = {c: bytes(wire.unpack(_list(federation, c, [5])).body) for c in (0, 1, 2)}
    without = {c: bytes(wire.unpack(_list(federation, c, [VICTIM, 5])).body) for c in (3, 4)}
    for client in (1, 2):
        _refused(_reveal(federation, client, [5], with_victim), words="3 clients have signed the list, 4 needed")
        _refused(_reveal(federation, client, [5], with_victim | without), words="3 clients have signed the list")
    for client in (3, 4):
        _refused(_reveal(federation, client, [VICTIM, 5], without | with_victim), words="2 clients have signed")


def test_signatures_that_the_server_makes_up_or_repeats_do_not_count() -> None:
    federation = _until(Kind.LIST)
    right = {c: bytes(wire.unpack(_list(federation, c, [])).body) for c in (0, 1, 2)}
    forged = Ed25519PrivateKey.generate().sign(b"?")
    _refused(_reveal(federation, 1, [], right | {3: forged}), words="3 clients have signed")
    _refused(_reveal(federation, 1, [], right | {3: right[2]}), words="3 clients have signed")
    right[3] = bytes(wire.unpack(_list(federation, 3, [])).body)
    assert wire.unpack(_reveal(federation, 1, [], right)).kind is Kind.REVEAL


def test_keys_swapped_for_the_servers_own_before_the_signatures_are_seen() -> None:
    federation = _until(Kind.LIST)
    session = federation.protocol.session
    assert session is not None
    state = Member.from_bytes(federation.states[1])
    own = Ed25519PrivateKey.generate()
    message = statement_of(state.circle, state.sharers, pack_members(_members(6)))
    for client in session.entries:
        entry = session.entries[client]
        session.entries[client] = entry[:32] + own.public_key().public_bytes_raw() + entry[64:]
    signatures = dict.fromkeys(range(6), own.sign(message))
    _refused(_reveal(federation, 1, [], signatures), words="not those that the round began with", code=wire.Failure.KEY)


@pytest.mark.parametrize(("place", "words"), [(1, "its own key is not among"), (3, "client 3 may sign")])
def test_keys_of_the_servers_own_in_the_place_of_clients_are_refused(place: int, words: str) -> None:
    """Else it could sign any list for everybody, and show each client another."""
    federation = Federation(masked(minimum=3, signed=True), vectors(range(4)))
    federation.sum(task())
    own = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    frame = _share(federation, sign=lambda keys: keys[: 32 * place] + own + keys[32 * place + 32 :])
    _refused(frame, words=words, code=wire.Failure.KEY)
    assert wire.unpack(_share(federation)).kind is Kind.SHARE


# Different sharers


def _told(federation: Federation, client: ClientId, gone: Iterable[int]) -> bytes:
    """Ask a client for its vector, and tell it who has shared."""
    members = pack_members(_members(len(federation.vectors), gone))
    return federation.step(client, wire.pack_task(replace(task(), told=members)))


def test_other_sharers_for_the_victim_alone_leave_it_a_mask_that_nobody_opens() -> None:
    """Its masks with who is not on the list are opened, and its own: so who signs has to be among its sharers."""
    federation = _until(Kind.TASK)
    assert wire.unpack(_told(federation, VICTIM, gone=[4, 5])).kind is Kind.MASKED
    for client in range(1, 6):
        assert wire.unpack(_told(federation, client, gone=[])).kind is Kind.MASKED
    gone = [1, 2, 3]  # all with whom the victim has masked
    _refused(_list(federation, 4, gone), words="3 of 6 clients are left, 4 needed")
    gone = [1, 2]
    signatures = {c: bytes(wire.unpack(_list(federation, c, gone)).body) for c in (3, 4, 5)}
    _refused(_reveal(federation, 4, gone, signatures), words="3 clients have signed the list, 4 needed")
    other = bytes(wire.unpack(_list(federation, VICTIM, [4, 5])).body)
    _refused(_reveal(federation, 4, gone, signatures | {VICTIM: other}), words="3 clients have signed the list")


@pytest.mark.parametrize("corrupted", [0.0, 0.05, 0.3, 0.5])
def test_where_lists_are_signed_all_are_neighbours_and_sharers_and_signers_have_honest_clients_in_common(
    corrupted: float,
) -> None:
    """On a sparse graph a server can part the two among the victim's neighbours, and read its vector."""
    for clients in (2, 3, 4, 5, 7, 10, 60, 99, 100, 1000):
        for minimum in (2, clients // 2 + 1, clients):
            hood = masked(minimum=minimum, signed=True, expected=clients, corrupted=corrupted).hood(clients)
            assert (hood.neighbours, hood.stretch, hood.threshold) == (clients - 1, 0, hood.minimum - 1)
            assert hood.minimum + hood.quorum - clients > hood.corrupted  # the victim itself does not sign that list
            assert hood.threshold > hood.corrupted


# Both kinds of share


@pytest.mark.parametrize("signed", [False, True])
def test_nobody_gives_both_kinds_of_share_of_one_client(signed: bool) -> None:
    federation = _until(Kind.REVEAL, signed=signed)
    signatures = {c: bytes(wire.unpack(reply).body) for kind, c, reply in federation.replies if kind is Kind.LIST}
    first = _reveal(federation, 1, [], signatures)
    assert wire.unpack(first).kind is Kind.REVEAL
    assert _reveal(federation, 1, [], signatures) == first  # the same again: an answer may be lost
    _refused(_reveal(federation, 1, [VICTIM], signatures), words="another list", code=wire.Failure.CHANGED)


def test_what_a_client_reveals_is_of_the_kind_that_the_list_says() -> None:
    """With both kinds from enough neighbours a vector is in the clear: so each kind has to be the right one."""
    federation = _until(Kind.REVEAL, signed=False)
    state = Member.from_bytes(federation.states[1])
    circle = Circle.drawn(state.circle, federation.protocol.hood(6))
    body = bytes(wire.unpack(_reveal(federation, 1, [VICTIM], {})).body)
    dealt = {c: bytes(wire.unpack(reply).body)[64:] for kind, c, reply in federation.replies if kind is Kind.SHARE}
    for point, other in enumerate(map(int, circle.neighbours(1))):
        share = body[point * 32 : point * 32 + 32]
        dealer = Member.from_bytes(federation.states[other])
        assert share not in dealt[other]
        rows = secrets.shares_of(dealer.polynomials(circle.hood.threshold), circle.hood.neighbours)
        own, others = rows[circle.hood.neighbours - 1 - point][:32], rows[circle.hood.neighbours - 1 - point][32:]
        assert share == (others if other == VICTIM else own)


# Lists that hide nobody


@pytest.mark.parametrize(
    ("gone", "words"),
    [([1], "not among those"), ([0, 2, 3], "3 of 6 clients are left, 4 needed"), ([0, 2, 3, 4, 5], "1 of 6 clients")],
)
@pytest.mark.parametrize("signed", [False, True])
def test_lists_that_are_too_short_or_without_the_client_are_refused(gone: list[int], words: str, signed: bool) -> None:
    _refused(_list(_until(Kind.LIST if signed else Kind.REVEAL, signed=signed), 1, gone), words=words)


@pytest.mark.parametrize("gone", [[1], [0, 2, 3]])
def test_no_vector_is_masked_for_a_sum_of_too_few_or_of_others(gone: list[int]) -> None:
    federation = _until(Kind.TASK)
    request = wire.pack_task(replace(task(), told=pack_members(_members(6, gone))))
    assert wire.unpack(federation.step(1, request)).kind is Kind.FAILURE
    assert wire.unpack(federation.step(1, wire.pack_task(replace(task(), told=b"")))).kind is Kind.FAILURE
    right = wire.pack_task(replace(task(), told=pack_members(_members(6))))
    assert wire.unpack(federation.step(1, right)).kind is Kind.MASKED


def test_a_list_with_clients_that_shared_nothing_is_refused() -> None:
    federation = _until(Kind.TASK)
    some = wire.pack_task(replace(task(), told=pack_members(_members(6, [5]))))
    assert wire.unpack(federation.step(1, some)).kind is Kind.MASKED
    _refused(_list(federation, 1, []), words="shared nothing")


def test_on_a_sparse_graph_a_server_cannot_cut_the_circle_by_who_it_says_has_dropped_out() -> None:
    protocol = masked(minimum=180, expected=200, fields=lambda _: Field(bound=1000, summands=200))
    federation = Federation(protocol, vectors(range(200)))
    federation.before = lambda kind, requests: requests if kind is Kind.ENROL else only(requests, [VICTIM])
    with pytest.raises(DropoutError):
        federation.sum(task())
    state = Member.from_bytes(federation.states[VICTIM])
    circle = Circle.drawn(state.circle, protocol.hood(200))
    behind = circle.order[(int(circle.seats[VICTIM]) + 1 + np.arange(20)) % 200]
    request = wire.pack_task(replace(task(), told=pack_members(_members(200, behind))))
    _refused(federation.step(VICTIM, request), words="do not hold together")
    request = wire.pack_task(replace(task(), told=pack_members(_members(200, behind[::2]))))
    assert wire.unpack(federation.step(VICTIM, request)).kind is Kind.MASKED


# Rounds again


@pytest.mark.parametrize("signed", [False, True])
def test_a_replayed_round_is_refused_at_every_message(signed: bool) -> None:
    federation = Federation(masked(minimum=3, signed=signed), vectors(range(4)))
    federation.sum(task(1))
    federation.sum(task(2))
    first = [(kind, client, frame) for kind, client, frame in federation.frames if kind is not Kind.ENROL]
    for kind, client, frame in first:
        if wire.unpack(frame).turn.round_number == 1:
            _refused(federation.step(client, frame), words="", code=wire.Failure.REPEATED)
        elif kind in (Kind.SHARE, Kind.TASK):  # of the last round: secrets were used, and are not shared or used again
            _refused(federation.step(client, frame), words="before", code=wire.Failure.REPEATED)
    federation.sum(task(3))


def test_a_second_task_with_another_cohort_in_the_same_turn_is_refused() -> None:
    federation = _until(Kind.TASK)
    session = federation.protocol.session
    assert session is not None
    listed = pack_clients(np.arange(5, dtype=np.uint64))
    keys = b"".join(session.entries[c][32:64] for c in range(5))
    circle = Circle.of(session.run, TURN, listed, keys_digest(keys), federation.protocol.hood(5))
    entries = b"".join(session.entries[int(c)] for c in circle.neighbours(1))
    _refused(
        federation.step(1, wire.pack(Kind.SHARE, TURN, listed + keys + entries)),
        words="answered this round",
        code=wire.Failure.REPEATED,
    )


def test_rounds_beyond_those_announced_and_requests_before_enrolment_are_refused() -> None:
    federation = _until(Kind.TASK)
    for kind in (Kind.SHARE, Kind.LIST, Kind.REVEAL):
        beyond = wire.pack(kind, Turn(round_number=10), b"")
        _refused(federation.step(1, beyond), words="beyond", code=wire.Failure.BEYOND)
    federation.states[2] = b""
    _refused(federation.step(2, wire.pack(Kind.SHARE, TURN, b"")), words="", code=wire.Failure.NOT_ENROLLED)


# Keys and invented clients


def _share(
    federation: Federation,
    change: Callable[[dict[int, bytes]], None] = lambda _: None,
    sign: Callable[[bytes], bytes] = lambda keys: keys,
) -> bytes:
    """Ask client 1 to share in round 2, with entries that the server has changed."""
    session, turn = federation.protocol.session, Turn(round_number=2)
    assert session is not None
    n = len(federation.vectors)
    entries = dict(session.entries)
    change(entries)
    listed = pack_clients(np.arange(n, dtype=np.uint64))
    keys = b"".join(entries[c][32:64] for c in range(n)) if federation.protocol.signed else b""
    keys = sign(keys)
    circle = Circle.of(session.run, turn, listed, keys_digest(keys), federation.protocol.hood(n))
    body = listed + keys + b"".join(entries[int(c)] for c in circle.neighbours(1))
    return federation.step(1, wire.pack(Kind.SHARE, turn, body))


def _entry(half: ClientHalf, federation: Federation, client: int, lasting: Ed25519PrivateKey | None = None) -> bytes:
    session = federation.protocol.session
    assert session is not None
    return Identity(secret=b"\x09" * 32, lasting=lasting).entry(half.statement(session.run, client))


def test_a_key_that_changes_in_a_run_is_refused_and_named() -> None:
    federation = Federation(masked(minimum=3), vectors(range(4)))
    federation.sum(task())
    forged = _entry(federation.protocol, federation, 3)
    frame = _share(federation, lambda entries: entries.update({3: forged}))
    _refused(frame, words="client 3 was shown with a key that is refused: it is another than", code=wire.Failure.KEY)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (bytes(32), "no key that can be agreed with"),
        ((1).to_bytes(32, "little"), "no key that can be agreed with"),
        (None, "own key"),
    ],
)
def test_low_order_and_reflected_keys_are_refused_and_named(wrong: bytes | None, words: str) -> None:
    federation = Federation(masked(minimum=3), vectors(range(4)))
    federation.sum(task(), [0, 1, 2])  # so that client 3 is new to client 1

    def change(entries: dict[int, bytes]) -> None:
        entries[3] = (entries[1][:32] if wrong is None else wrong) + bytes(32) + bytes(64)

    frame = _share(federation, change)
    _refused(frame, words="client 3 was shown with a key that is refused", code=wire.Failure.KEY)
    assert words in reason(frame)


def test_one_key_for_two_clients_is_refused() -> None:
    federation = Federation(masked(minimum=3), vectors(range(5)))
    federation.sum(task(), [0, 1, 2])

    def change(entries: dict[int, bytes]) -> None:
        entries[3] = _entry(federation.protocol, federation, 3)
        entries[4] = _entry(federation.protocol, federation, 4)

    _refused(_share(federation, change), words="was shown with a key of another client", code=wire.Failure.KEY)


def test_a_cohort_larger_than_a_sum_has_room_for_is_refused_before_anything_is_computed() -> None:
    federation = Federation(masked(minimum=3), vectors(range(4)))
    federation.sum(task())
    listed = pack_clients(np.arange(1_000_000, dtype=np.uint64))
    frame = federation.step(1, wire.pack(Kind.SHARE, Turn(round_number=2), listed))
    _refused(frame, words="1000000 clients, and sums have room for 64")


def test_a_client_is_not_shown_itself_under_another_number() -> None:
    """Its lasting identity may have enrolled under that number before; counted twice, a sum would be of one less."""
    identity = Ed25519PrivateKey.generate()
    federation = Federation(masked(minimum=3, signed=True), vectors(range(4)))
    federation.halves = {1: replace(federation.protocol, identity=identity)}
    federation.sum(task(), [0, 1, 2])
    twice = _entry(federation.protocol, federation, 3, lasting=identity)
    frame = _share(federation, lambda entries: entries.update({3: twice}))
    _refused(frame, words="client 3 was shown with a key of another client", code=wire.Failure.KEY)


def test_short_keys_are_refused() -> None:
    federation = Federation(masked(minimum=3), vectors(range(4)))
    federation.sum(task(), [0, 1, 2])
    frame = _share(federation, lambda entries: entries.update({3: bytes(ENTRY_BYTES - 1)}))
    _refused(frame, words="Expected the keys of 3 neighbours")


def test_a_key_without_its_clients_signature_is_refused_where_lists_are_signed() -> None:
    federation = Federation(masked(minimum=3, signed=True), vectors(range(4)))
    federation.sum(task(), [0, 1, 2])
    forged = bytearray(_entry(federation.protocol, federation, 3))
    forged[-1] ^= 1
    frame = _share(federation, lambda entries: entries.update({3: bytes(forged)}))
    _refused(
        frame, words="client 3 was shown with a key that is refused: its keys are not signed", code=wire.Failure.KEY
    )


def test_invented_clients_are_refused_where_the_true_ones_are_known() -> None:
    identities = {client: Ed25519PrivateKey.generate() for client in range(4)}
    known = frozenset(key.public_key().public_bytes_raw() for key in identities.values())
    federation = Federation(masked(minimum=3, signed=True), vectors(range(5)))
    federation.halves = {c: replace(federation.protocol, identity=key, known=known) for c, key in identities.items()}
    total = federation.sum(task(), [0, 1, 2, 3])
    assert total.vector.tolist() == clear_sum(federation.vectors, range(4)).tolist()
    with pytest.raises(DropoutError) as caught:
        federation.sum(task(2))  # client 4 is the server's
    assert "client 4 was shown with a key that is refused: its identity is not on this client's list" in str(
        caught.value
    )


# Bytes


@pytest.mark.parametrize("kind", [Kind.ENROL, Kind.SHARE, Kind.LIST, Kind.REVEAL])
def test_garbage_is_refused_and_changes_nothing(kind: Kind) -> None:
    federation = _until(kind if kind is not Kind.ENROL else Kind.SHARE)
    before = dict(federation.states)
    for body in (b"", b"\x00", bytes(31), b"\xff" * 200, bytes(5000)):
        assert wire.unpack(federation.step(1, wire.pack(kind, TURN, body))).kind is Kind.FAILURE
    assert federation.states == before


@pytest.mark.parametrize("kind", [Kind.ENROL, Kind.SHARE, Kind.TASK, Kind.LIST, Kind.REVEAL])
@pytest.mark.parametrize("garbage", [b"", b"TCT", b"\xff" * 300])
def test_a_client_that_answers_with_garbage_never_ends_a_round(kind: Kind, garbage: bytes) -> None:
    def meddle(found: Kind, replies: Frames) -> Frames:
        return {c: garbage if (found, c) == (kind, 2) else reply for c, reply in replies.items()}

    federation = Federation(masked(minimum=4, signed=True), vectors(range(6)), after=meddle)
    total = federation.sum(task())
    assert total.vector.tolist() == clear_sum(federation.vectors, total.clients).tolist()
    assert any("lient 2 " in note for note in total.notes)


def test_a_damaged_memory_is_refused() -> None:
    federation = _until(Kind.TASK)
    request = wire.pack_task(replace(task(), told=pack_members(_members(6))))
    for state in (b"\x01", federation.states[1][:-1], federation.states[1] + b"?"):
        federation.states[1] = state
        _refused(federation.step(1, request), words="damaged")
