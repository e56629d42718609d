"""A sum that is opened in blocks, each of a row here: what a server can have opened of them, and what it keeps."""

from __future__ import annotations

import errno
import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tacit import wire
from tacit.crypto.paillier import CiphertextVector, Layout
from tacit.crypto.paillier.knowledge import encrypted, proof_bytes
from tacit.errors import DropoutError, StorageError
from tacit.flow import ClientId, Frames, Gather
from tacit.protocols.paillier import Caution, binding, blocks, session
from tacit.protocols.paillier.blocks import BlockOpening, Blocks, Part, Tree, leaf, part_bytes, root_of
from tacit.protocols.paillier.client import Member
from tacit.protocols.signatures import SIGNATURE_BYTES
from tests.protocols.paillier.run import LENGTH, Replies, Run, Shown, holders_of, opens
from tests.protocols.paillier.test_sum import LENGTH as LONGER
from tests.protocols.paillier.test_sum import TASK, Federation, _only
from tests.protocols.test_conformance import encrypted as federated
from tests.protocols.test_conformance import key_shares, layout

TURN = wire.Turn(round_number=1)
FORM = layout(LENGTH, 256)


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "FRAME_BYTES", 1)
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    assert Blocks(layout=FORM).count == FORM.rows == 3


def _asked(run: Run, request: BlockOpening | bytes, holders: Sequence[ClientId] | None = None) -> list[str]:
    """Return what holders of shares say to a request for a block: nothing where they give their part."""
    body = request if isinstance(request, bytes) else b"".join(request.pieces())
    frame = wire.unpack(wire.pack(wire.Kind.OPEN, TURN, body))
    answers = [wire.unpack(run.holders[holder].answer(frame)) for holder in holders or run.holders]
    return ["" if one.kind is wire.Kind.OPENED else wire.unpack_failure(one)[1] for one in answers]


def _all(said: Sequence[str], words: str) -> bool:
    return all(words in one and one for one in said)


def _shown(run: Run, clients: int = 4) -> tuple[Replies, Shown]:
    replies = {client: run.reply(client) for client in range(clients)}
    return replies, run.opening(replies)


# Where vectors are cut, and the hashes over them


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("each", [1, 3, 64])
def test_blocks_cover_a_vector_and_are_vectors(rows: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST_ROWS", each)
    for length in {rows * FORM.slots, (rows - 1) * FORM.slots + 1}:
        form = replace(FORM, length=length)
        cut = Blocks(layout=form)
        places = [cut.rows(number) for number in range(cut.count)]
        assert np.concatenate([np.arange(form.rows)[place] for place in places]).tolist() == list(range(rows))
        assert [cut.layout_of(number).rows for number in range(cut.count)] == [cut.size(n) for n in range(cut.count)]
        assert sum(cut.layout_of(number).length for number in range(cut.count)) == length


@pytest.mark.parametrize("clients", [2, 20, 150])
@pytest.mark.parametrize("length", [1_000_000, 25_000_000])
def test_a_request_takes_a_few_megabytes_whatever_the_model(
    clients: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    cut = Blocks(layout=Layout.floats(length=length, clip=1.0, bits=24, summands=clients, key_bits=3072))
    assert cut.count * cut.each * 768 * clients > 100 * clients * length / 20  # there is something to cut
    each = cut.depth * 32 + 1381 + cut.each * 768  # ciphertexts of 768 bytes, and the proof of a block
    assert 12 << 20 < clients * (each + 104) < 18 << 20


@pytest.mark.parametrize("summands", [2, 20, 170, 171, 5000])
def test_no_request_is_longer_than_a_holder_takes(summands: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """For any length and any list that the layout has room for; by more than what ways and lists may take, never."""
    monkeypatch.undo()
    key = key_shares()[0].public.key
    rows = 7 * blocks.FRAME_BYTES // (key.ring.width * summands) + 1000
    form = Layout.floats(length=1, clip=1.0, bits=24, summands=summands, key_bits=key.bits)
    form = replace(form, length=rows * form.slots)
    for clients in {2, summands}:
        listed = 4 + 104 * clients + 32 + 37 + 8
        asked = listed + clients * part_bytes(Blocks(layout=form), 0, key)
        assert asked <= blocks.largest_request(key, clients)
        assert clients < summands or blocks.largest_request(key, clients) < 1.5 * asked + 3000 * clients


@pytest.mark.parametrize("count", range(1, 10))
def test_a_way_leads_to_the_root_from_its_own_block_and_place_alone(count: int) -> None:
    tree = Tree([leaf(b"proof", bytes([number])) for number in range(count)])
    depth = (count - 1).bit_length()
    assert {len(tree.way(number)) for number in range(count)} == {32 * depth}
    for shown, place, way in itertools.product(range(count), repeat=3):
        found = root_of(tree.leaves[shown], place, tree.way(way))
        assert (found == tree.root) is (shown == place == way)
    assert len({leaf(b"a", b"bc"), leaf(b"ab", b"c"), leaf(b"abc", b"")}) == 3


# Honest rounds


def test_a_sum_in_blocks_is_the_sum_and_the_same_holders_open_all_of_it() -> None:
    federation = Federation(federated(1, "threshold"))
    total = federation.sum()
    assert np.abs(total.vector - federation.exact).max() < 1e-6
    assert total.notes == ()
    rows = layout(LONGER, 256).rows
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[-2, -1]] * rows
    assert rows == 6


def test_blocks_are_opened_in_any_order_and_again_and_by_a_holder_that_starts_anew() -> None:
    run = Run("threshold")
    _, shown = _shown(run)
    for number in (2, 0, 0, 1, 2):
        assert _asked(run, shown.block(number)) == ["", "", ""]
        memories = {party: holder.memory for party, holder in run.holders.items()}
        for party, memory in memories.items():
            run.holders[party] = holders_of("threshold", Caution(rules=run.rules, memory=memory))[party]
    opens(run.ask(shown), run.exact(range(4)))
    assert len({len(memory) for memory in memories.values()}) == 1  # which does not grow with blocks


# A server that lies about blocks


def test_no_block_is_opened_of_another_list_of_clients_once_one_was() -> None:
    """The differencing attack across blocks: the rest of the vector, or all of it, without client 3."""
    run = Run("threshold")
    replies, shown = _shown(run)
    assert _asked(run, shown.block(0)) == ["", "", ""]
    fewer = run.opening({client: replies[client] for client in range(3)})
    for number in range(3):
        assert _all(_asked(run, fewer.block(number)), "a second sum for round 1")
    memories = {party: holder.memory for party, holder in run.holders.items()}
    for party, memory in memories.items():  # nor after a restart
        run.holders[party] = holders_of("threshold", Caution(rules=run.rules, memory=memory))[party]
    assert _all(_asked(run, fewer.block(1)), "a second sum for round 1")
    opens(run.ask(shown), run.exact(range(4)))


def test_no_block_is_opened_of_another_reply_of_a_client_once_one_was() -> None:
    """A client that answered twice: block 0 of its first vector and block 1 of its second are of no one sum."""
    run = Run("threshold")
    first, shown = _shown(run)
    second = run.opening({**first, 3: run.reply(3)})
    assert _asked(run, shown.block(0)) == ["", "", ""]
    assert _all(_asked(run, second.block(1)), "a second sum for round 1")
    mixed = replace(shown.block(1), parts=[*shown.block(1).parts[:3], second.block(1).parts[3]])
    assert _all(_asked(run, mixed), "what was shown of client 3 in block 1 is not what it signed")


def test_holders_that_are_shown_different_sums_open_one_of_them_at_most() -> None:
    """Of 2 in 3 without a liar: whoever has given a part of one sum gives none of another, of whatever block."""
    run = Run("threshold")
    replies, whole = _shown(run)
    part = run.opening({client: replies[client] for client in range(3)})
    assert _asked(run, whole.block(0), [-1, -2]) == ["", ""]
    for number in range(3):
        assert _asked(run, part.block(number), [-3]) == [""]
        assert _all(_asked(run, part.block(number), [-1, -2]), "a second sum for round 1")
        assert _all(_asked(run, whole.block(number), [-3]), "a second sum for round 1")


def _swapped(shown: Shown) -> BlockOpening:
    parts = list(shown.block(1).parts)
    return replace(shown.block(1), parts=[parts[1], parts[0], *parts[2:]])


def _repeated(shown: Shown) -> BlockOpening:
    """Block 0 again in the place of block 1, on the way of block 1."""
    own = zip(shown.block(0).parts, shown.block(1).parts, strict=True)
    return replace(shown.block(1), parts=[replace(first, way=second.way) for first, second in own])


LIES: Mapping[str, Callable[[Shown], BlockOpening]] = {
    "two clients' blocks swapped": _swapped,
    "a block twice": _repeated,
    "a block twice, with its way": lambda shown: replace(shown.block(0), number=1),
    "another block's way": lambda shown: replace(
        shown.block(1), parts=[replace(part, way=shown.block(0).parts[0].way) for part in shown.block(1).parts]
    ),
    "another block's proof": lambda shown: replace(
        shown.block(1), parts=[replace(part, proof=shown.block(0).parts[0].proof) for part in shown.block(1).parts]
    ),
    "a ciphertext of the server's": lambda shown: replace(
        shown.block(1), parts=[*shown.block(1).parts[:3], replace(shown.block(1).parts[3], rows=bytes(63) + b"\x01")]
    ),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("before", [False, True])
def test_what_is_not_the_clients_block_in_its_place_is_not_opened(lie: str, before: bool) -> None:
    run = Run("threshold")
    _, shown = _shown(run)
    if before:  # where signatures were looked at before
        assert _asked(run, shown.block(0)) == ["", "", ""]
    assert _all(_asked(run, LIES[lie](shown)), "is not what it signed")
    opens(run.ask(shown), run.exact(range(4)))


@pytest.mark.parametrize("number", [3, 4, 2**63])
def test_there_is_no_block_beyond_the_last(number: int) -> None:
    run = Run("threshold")
    _, shown = _shown(run)
    assert _all(_asked(run, replace(shown.block(2), number=number)), f"a block from 0 to 2, got {number}")


def test_a_sum_is_not_cut_in_other_places_than_its_clients_signed() -> None:
    """Fewer numbers, or more summands and so other blocks: the layout is under the signatures."""
    run = Run("threshold", holders=holders_of("threshold", Caution(rules=None)))
    _, shown = _shown(run)
    whole = shown.block(0)
    for form in (replace(FORM, length=FORM.slots), replace(FORM, summands=15), replace(FORM, step=1.0)):
        lying = replace(whole, commitment=replace(whole.commitment, layout=form))
        if Blocks(layout=form).depth == 0:
            lying = replace(lying, parts=[replace(part, way=b"") for part in whole.parts])
        assert _all(_asked(run, lying), "client 0 has not signed")
    wider = replace(whole, commitment=replace(whole.commitment, layout=replace(FORM, key_bits=512)))
    assert _all(_asked(run, wider), "a layout for keys of 256 bits, got one for 512")


def test_requests_that_are_cut_short_or_too_long_are_refused_and_use_up_nothing() -> None:
    run = Run("threshold")
    _, shown = _shown(run)
    body = shown.to_bytes(1)
    for wrong in (*(body[:at] for at in range(0, len(body), 97)), body + b"\x00"):
        assert all(_asked(run, wrong))
    assert not any(holder._register.last for holder in run.holders.values())
    opens(run.ask(shown), run.exact(range(4)))


def test_a_block_that_was_refused_first_uses_up_no_round_and_one_that_was_opened_does() -> None:
    run = Run("threshold")
    replies, shown = _shown(run)
    fewer = run.opening({client: replies[client] for client in range(3)})
    assert all(_asked(run, LIES["a block twice"](shown)))
    assert _asked(run, fewer.block(2)) == ["", "", ""]
    assert _all(_asked(run, shown.block(2)), "a second sum for round 1")


# A client that sides with the server


def _forged(run: Run, replies: Replies, changed: Mapping[int, tuple[bytes, bytes]]) -> Replies:
    """Return replies in which client 3 has signed other blocks, each a proof and a row, in the place of its own."""
    key, (seal, body) = run.session.key, replies[3]
    each = proof_bytes(key)
    proofs = [seal[at : at + each] for at in range(SIGNATURE_BYTES, len(seal), each)]
    rows = run.added([body]).rows.copy()
    for number, (proof, row) in changed.items():
        proofs[number], rows[number] = proof, np.frombuffer(row, np.uint8)
    signature = Member.from_bytes(run.states[3]).signature(run.occasion(3, 1), FORM, proofs, rows)
    vector = CiphertextVector(key=key, layout=FORM, summands=1, rows=rows)
    return {**replies, 3: (b"".join([signature, *proofs]), vector.to_bytes())}


def _less(run: Run, replies: Replies, number: int) -> tuple[bytes, bytes]:
    """Return a block of zeros less what clients 1 and 2 sent, and a proof of all that its maker knows: the zeros."""
    key = run.session.key
    packed = FORM.packed(np.zeros(LENGTH, np.int64), 3)[number : number + 1]
    noise = binding.noise_of(key, "threshold")
    zeros, proof = encrypted(key, packed, run.occasion(3, 1).of_block(number), noise=noise)
    theirs = run.added([replies[1][1], replies[2][1]]).rows[number : number + 1]
    return proof.to_bytes(key), key.ring.multiply(zeros, key.ring.inverse(theirs)).tobytes()


def test_nobody_is_taken_out_of_a_block_by_what_a_client_passes_off_in_that_block_alone() -> None:
    """Client 3's blocks 0 and 1 are honest, and are opened; its block 2 would leave client 0's numbers."""
    run = Run("threshold")
    replies, _ = _shown(run)
    lying = run.opening(_forged(run, replies, {2: _less(run, replies, 2)}))
    assert _asked(run, lying.block(0)) == _asked(run, lying.block(1)) == ["", "", ""]
    assert _all(_asked(run, lying.block(2)), "client 3 has not proved")
    assert _all(_asked(run, run.opening(replies).block(2)), "a second sum for round 1")


def test_a_proof_is_of_one_block_in_one_place() -> None:
    run = Run("threshold")
    replies, shown = _shown(run)
    theirs, own = shown.block(0).parts[2], shown.block(0).parts[3]
    for part in (own, theirs):  # its own block 0 as block 1 too, and a copy of client 2's
        lying = run.opening(_forged(run, replies, {1: (bytes(part.proof), bytes(part.rows))}))
        assert _all(_asked(run, lying.block(1)), "client 3 has not proved")
    copied = run.opening(_forged(run, replies, {0: (bytes(theirs.proof), bytes(theirs.rows))}))
    assert _all(_asked(run, copied.block(0)), "client 3 has not proved")
    opens(run.ask(shown), run.exact(range(4)))


def test_without_proofs_such_a_block_would_give_away_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("threshold")
    replies, _ = _shown(run)
    lying = run.opening(_forged(run, replies, {0: _less(run, replies, 0)}))
    monkeypatch.setattr("tacit.protocols.paillier.holders.unproved", lambda *_, **__: [])
    given = run.ask_for(lying.to_bytes(0), TURN, lambda: run.block(lying, 0))
    assert not isinstance(given, str)
    assert np.abs(given - run.vectors[0][: FORM.slots]).max() < 1e-6


# The server


def test_a_client_with_one_wrong_proof_among_its_blocks_is_left_out_and_named() -> None:
    def exchanged(replies: Frames) -> Frames:
        member, body = Member.from_bytes(federation.states[1]), bytes(wire.unpack(replies[1]).body)
        form, each = layout(LONGER, 256), proof_bytes(member.key)
        size = binding.seal_bytes("threshold", member.key, form.rows)
        proofs = [body[at : at + each] for at in range(SIGNATURE_BYTES, size, each)]
        proofs[4] = proofs[3]
        asked = wire.bound_to(TASK, b"")
        occasion = binding.Occasion(run=member.run, client=1, turn=TASK.turn, asked=asked)
        rows = CiphertextVector.from_bytes(body[size:], member.key).rows
        signature = member.signature(occasion, form, proofs, rows)
        return {**replies, 1: wire.pack(wire.Kind.CIPHER, TASK.turn, signature, *proofs, body[size:])}

    federation = Federation(federated(1, "threshold"), meddle=_only(wire.Kind.TASK, exchanged))
    total = federation.sum()
    assert total.clients == (0, 2, 3)
    (note,) = total.notes
    assert "Client 1 " in note
    assert "Its proof that it knows what is in it does not hold" in note
    assert np.abs(total.vector - np.sum([federation.vectors[c] for c in (0, 2, 3)], axis=0)).max() < 1e-6


def _lying_from(block: int, lie: Callable[[bytes], bytes | None]) -> Federation:
    """Return a federation in which key holder 2 lies from a block on."""
    asked = itertools.count()

    def changed(replies: Frames) -> Frames:
        if next(asked) < block or -2 not in replies:
            return replies
        sent = lie(replies[-2])
        return {holder: frame for holder, frame in {**replies, -2: sent}.items() if frame is not None}

    return Federation(federated(1, "threshold"), meddle=_only(wire.Kind.OPEN, changed))


def test_a_holder_that_lies_about_a_block_is_named_once_and_not_asked_for_the_rest() -> None:
    federation = _lying_from(2, lambda _: b"garbage")
    total = federation.sum()
    assert np.abs(total.vector - federation.exact).max() < 1e-6
    assert [note[:35] for note in total.notes] == ["Key holder 2 sent a damaged reply: "]
    asked = [holders for kind, holders in federation.asked if kind is wire.Kind.OPEN]
    assert asked == [[-2, -1]] * 3 + [[-3]] + [[-3, -1]] * 3


def test_a_holder_that_goes_away_in_the_middle_is_not_waited_for_in_every_block() -> None:
    federation = _lying_from(2, lambda _: None)
    total = federation.sum()
    assert np.abs(total.vector - federation.exact).max() < 1e-6
    assert total.notes == ()
    asked = [holders for kind, holders in federation.asked if kind is wire.Kind.OPEN]
    assert asked == [[-2, -1]] * 3 + [[-3]] + [[-3, -1]] * 3


def test_a_part_of_another_block_is_no_part() -> None:
    """Replayed: its part of block 0 for all others. It is named, and nothing is combined of it."""
    first: list[bytes] = []

    def replayed(frame: bytes) -> bytes:
        first.append(frame)
        return first[0]

    federation = _lying_from(0, replayed)
    total = federation.sum()
    assert np.abs(total.vector - federation.exact).max() < 1e-6
    assert "its part of another sum" in total.notes[0]


def test_where_holders_stop_in_the_middle_nothing_of_the_sum_is_used() -> None:
    asked = itertools.count()
    stopped = _only(wire.Kind.OPEN, lambda replies: replies if next(asked) < 3 else {})
    federation = Federation(federated(1, "threshold"), meddle=stopped)
    with pytest.raises(DropoutError, match="0 of 3 key holders answered with their part"):
        federation.sum()


def test_what_waits_for_the_holders_is_in_a_file_that_is_gone_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[blocks.Aside] = []

    class Watched(blocks.Aside):
        def __init__(self, **given: object) -> None:
            super().__init__(**given)  # type: ignore[arg-type]
            made.append(self)

        def part(self, client: ClientId, number: int, way: bytes) -> Part:
            assert self._file._rolled  # type: ignore[attr-defined]
            return super().part(client, number, way)

    monkeypatch.setattr(blocks, "_IN_MEMORY", 1)
    monkeypatch.setattr(session, "Aside", Watched)
    federation = Federation(federated(1, "threshold"))
    assert np.abs(federation.sum().vector - federation.exact).max() < 1e-6
    flow = federation.ready().server(range(4), TASK, LONGER)
    next(flow)
    flow.close()  # a round that is given up
    assert len(made) == 2
    assert all(aside._file.closed for aside in made)


def test_a_client_that_answers_again_after_it_said_it_is_not_enrolled_stops_no_round() -> None:
    run = Run("threshold")
    gathered = session.RunningSum(turn=TURN, asked=run.asked, layout=FORM, session=run.session, cohort=range(4))
    gathered.receive(1, wire.pack_failure(TURN, wire.Failure.NOT_ENROLLED))
    for client in range(4):
        gathered.receive(client, wire.pack(wire.Kind.CIPHER, TURN, *run.reply(client)))
    gathered.finish()
    assert gathered.clients == [0, 2, 3]
    assert "not enrolled" in gathered.refusals.reasons[1]
    gathered.close()


@pytest.mark.parametrize("named", ["", "nowhere"])
def test_ciphertexts_do_not_end_in_memory_where_tmpdir_names_no_folder(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_LARGE_FILES", str(tmp_path))
    monkeypatch.setenv("TMPDIR", named and str(tmp_path / named))
    assert blocks._folder() == str(tmp_path)
    own = tmp_path / "own"
    own.mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    assert blocks._folder() == str(own)


def test_a_reply_that_comes_when_blocks_are_opened_already_or_after_all_changes_nothing() -> None:
    federation = Federation(federated(1, "threshold"))
    flow = federation.ready().server(range(4), TASK, LONGER)
    requests = next(flow)
    assert isinstance(requests, Gather)
    replies = federation.answer(requests)
    for client in range(3):
        requests.receive(client, replies[client])
    asked = flow.send({})
    for late in (replies[3], b"no frame", replies[3], b"", replies[0]):
        requests.receive(3, late)
        asked = flow.send(federation.answer(asked))
    with pytest.raises(StopIteration) as stop:
        flow.send(federation.answer(asked))
    requests.receive(3, replies[3])
    total = stop.value.value
    assert (total.clients, total.notes) == ((0, 1, 2), ())
    assert np.abs(total.vector - np.sum(federation.vectors[:3], axis=0)).max() < 1e-6


def test_a_disk_that_is_full_ends_the_round_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def seek(self, *_: object) -> int:
            return 0

        def write(self, _: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda **_: Full())
    with pytest.raises(StorageError, match=r"until key holders are shown them.*No space left.*TMPDIR"):
        Federation(federated(1, "threshold")).sum()


def test_an_authority_is_asked_once_however_long_the_vector() -> None:
    federation = Federation(federated(1, "authority"))
    assert np.abs(federation.sum().vector - federation.exact).max() < 1e-6
    assert [asked for kind, asked in federation.asked if kind is wire.Kind.OPEN] == [[-1]]


def test_what_is_said_of_lengths_is_so() -> None:
    """By which `tacit estimate` tells what key holders are sent."""
    run = Run("threshold")
    _, shown = _shown(run)
    sizes = [len(shown.to_bytes(number)) for number in range(shown.count)]
    assert sum(sizes) == blocks.shown_bytes(FORM, run.session.key, 4)
    cut = Blocks(layout=FORM)
    parts = [shown.block(number).parts[0] for number in range(3)]
    lengths = [len(part.way) + len(part.proof) + len(part.rows) for part in parts]
    assert lengths == [part_bytes(cut, number, run.session.key) for number in range(3)]
