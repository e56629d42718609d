"""Key holders that lie: three of five open a sum, and whoever sends something else is named and left out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import threshold
from tacit.crypto.ring import from_integers
from tacit.crypto.threshold import PartialDecryption, combination
from tacit.errors import DropoutError, TacitError
from tacit.flow import ClientId, Frames
from tacit.protocols.paillier import Caution, PaillierSum, Rules, ShareHolder
from tacit.protocols.paillier.session import SETUP
from tests.protocols.paillier.test_sum import TURN, Federation, _only
from tests.protocols.test_conformance import Parts, encrypted, layout

Lie = Callable[[ClientId, bytes], bytes]  # a holder's number and its honest frame -> what it sends


@functools.cache
def _shares() -> tuple[threshold.KeyShare, ...]:
    return threshold.generate(shares=5, threshold=3, bits=256, insecure_key_size=True)[1]


def _parts(*, prove: bool = False, silent: tuple[int, ...] = ()) -> Parts:
    """Return the protocol and its holders; ``silent`` ones give no proofs whatever is asked."""
    caution = Caution(rules=Rules(minimum_clients=1, rounds=9), layout=layout, floor=1)
    holders = {
        -share.index: ShareHolder(share=share, caution=caution, prove=prove and share.index not in silent)
        for share in _shares()
    }
    protocol = PaillierSum(
        minimum_clients=1,
        rounds=9,
        layout=layout,
        keys="threshold",
        holders=tuple(holders),
        needed=3,
        insecure_key_size=True,
    )
    return Parts(protocol=protocol, holders=holders)


def _lying(lies: dict[ClientId, Lie], parts: Parts | None = None) -> Federation:
    def changed(replies: Frames) -> Frames:
        return {holder: lies[holder](holder, f) if holder in lies else f for holder, f in replies.items()}

    return Federation(parts or _parts(), meddle=_only(wire.Kind.OPEN, changed))


def _repacked(frame: bytes, change: Callable[[PartialDecryption], PartialDecryption]) -> bytes:
    part = PartialDecryption.from_bytes(wire.unpack(frame).body, _shares()[0].public)
    return wire.pack(wire.Kind.OPENED, TURN, change(part).to_bytes())


def _garbage(_: ClientId, __: bytes) -> bytes:
    return b"garbage"


def _wrong_share(holder: ClientId, frame: bytes) -> bytes:
    """Return a part of the right form with numbers of nobody's share."""
    return _repacked(
        frame, lambda part: replace(part, rows=from_integers([7 - holder] * len(part.rows), part.rows.shape[1]))
    )


def _framing(_: ClientId, frame: bytes) -> bytes:
    return _repacked(frame, lambda part: replace(part, index=5))


def _of_another_sum(_: ClientId, frame: bytes) -> bytes:
    return _repacked(frame, lambda part: replace(part, ciphertext=bytes(32)))


def _too_short(_: ClientId, frame: bytes) -> bytes:
    return _repacked(frame, lambda part: replace(part, rows=part.rows[:1]))


def _late(_: ClientId, frame: bytes) -> bytes:
    return wire.pack(wire.Kind.OPENED, replace(TURN, round_number=2), wire.unpack(frame).body)


def _refusal(_: ClientId, __: bytes) -> bytes:
    return wire.pack_failure(TURN, wire.Failure.REFUSED, "not today.")


def _asked(federation: Federation) -> list[list[ClientId]]:
    return [holders for kind, holders in federation.asked if kind is wire.Kind.OPEN]


@pytest.mark.parametrize("prove", [False, True])
@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (_garbage, "Key holder 2 sent a damaged reply: Expected a frame of at least 20 bytes, got 7"),
        (lambda _, f: wire.pack(wire.Kind.OPENED, TURN, b"garbage"), "Key holder 2 was asked.*partial decryption, got"),
        (_framing, "Key holder 2 was asked .*number of share 5, expected its own"),
        (_of_another_sum, "Key holder 2 was asked .*its part of another sum"),
        (_too_short, "Key holder 2 was asked .*its part of another sum"),
        (_late, "Key holder 2 answered with OPENED for .*round_number=2.*stale"),
        (_refusal, "Key holder 2 failed in round 3: not today"),
        (_wrong_share, "Key holder 2 gave a wrong share"),
    ],
)
def test_one_bad_holder_of_five_is_named_and_the_sum_is_opened(lie: Lie, words: str, prove: bool) -> None:
    federation = _lying({-2: lie}, _parts(prove=prove))
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    (note,) = total.notes
    assert note.endswith("The sum was opened without it.")
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(note)
    asked = _asked(federation)
    others = [[-5, -4]] if lie is _wrong_share and not prove else [[-4]]  # without proofs all are asked who it is
    assert asked == [[-3, -2, -1], *others]


def test_a_copy_of_another_holders_part_is_no_second_part() -> None:
    seen: dict[ClientId, bytes] = {}

    def copied(_: ClientId, __: bytes) -> bytes:
        return seen[-1]

    def keep(holder: ClientId, frame: bytes) -> bytes:
        seen[holder] = frame
        return frame

    federation = _lying({-1: keep, -2: copied})
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert len(total.notes) == 1
    assert "Key holder 2 was asked to open a sum: it answered with the number of share 1" in total.notes[0]


def test_two_bad_holders_of_five_are_as_many_as_the_key_allows() -> None:
    for prove in (False, True):
        for lies in ({-1: _garbage, -4: _wrong_share}, {-1: _wrong_share, -2: _wrong_share}, {-3: _framing, -2: _late}):
            federation = _lying(lies, _parts(prove=prove))  # type: ignore[arg-type]
            total = federation.sum()
            np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
            assert [note.split(" ", 3)[:3] for note in total.notes] == [
                ["Key", "holder", str(-holder)] for holder in sorted(lies, reverse=True)
            ]


def test_liars_without_proofs_are_found_by_the_proofs_of_the_others() -> None:
    parts = _parts(prove=True, silent=(1, 2))
    federation = _lying({-1: _wrong_share, -2: _wrong_share}, parts)
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert [note[:33] for note in total.notes] == [
        "Key holder 1 gave a wrong share. ",
        "Key holder 2 gave a wrong share. ",
    ]


def test_where_proofs_are_asked_for_liars_without_one_are_left_out_without_a_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("searched")

    monkeypatch.setattr("tacit.crypto.threshold.combination.agreeing", never)
    parts = _parts(prove=True, silent=(1, 2))
    strict = replace(parts, protocol=replace(parts.protocol, prove=True))  # type: ignore[type-var]
    federation = _lying({-1: _wrong_share, -2: _wrong_share}, strict)
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert ["gave no proof of its part" in note for note in total.notes] == [True, True]
    assert _asked(federation) == [[-3, -2, -1], [-5, -4]]


def test_with_all_but_two_lying_nothing_is_opened_and_the_proofs_name_them() -> None:
    lies = dict.fromkeys((-1, -2, -3), _wrong_share)
    federation = _lying(lies, _parts(prove=True))  # type: ignore[arg-type]
    with pytest.raises(DropoutError) as caught:
        federation.sum()
    text = str(caught.value)
    assert "was not opened: 2 of 5 key holders answered with their part, 3 needed" in text
    assert all(f"Key holder {number} gave a wrong share: its proof does not hold." in text for number in (1, 2, 3))
    assert "Key holder 4" not in text


def test_with_all_but_two_lying_without_proofs_the_search_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    searches = []
    honest = combination.agreeing

    def counted(*arguments: object, **more: object) -> object:
        searches.append(1)
        return honest(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("tacit.crypto.threshold.combination.agreeing", counted)
    federation = _lying(dict.fromkeys((-1, -3, -5), _wrong_share))
    with pytest.raises(DropoutError, match=r"not opened: 5 of 5 .*fewer than 3 are right.*Ask for proofs"):
        federation.sum()
    assert len(searches) == 2  # of the first three, and of all
    assert _asked(federation) == [[-3, -2, -1], [-5, -4]]


def test_a_holder_that_was_away_is_asked_again_and_one_that_lied_is_not() -> None:
    trips = []

    def away_once(replies: Frames) -> Frames:
        trips.append(sorted(replies))
        left = {holder: frame for holder, frame in replies.items() if holder == -1 or len(trips) > 2}
        return left | ({-2: b"garbage"} if -2 in replies else {})

    federation = Federation(_parts(), meddle=_only(wire.Kind.OPEN, away_once))
    np.testing.assert_allclose(federation.sum().vector, federation.exact, atol=1e-6)
    assert trips == [[-3, -2, -1], [-5, -4], [-4, -3]]


def test_an_authority_that_answers_garbage_is_named() -> None:
    federation = Federation(encrypted(1, "authority"), meddle=_only(wire.Kind.OPEN, lambda _: {-1: b"garbage"}))
    with pytest.raises(DropoutError, match=r"0 of 1 key holders answered.*Key holder 1 sent a damaged reply"):
        federation.sum()


def test_a_sharing_client_that_answers_garbage_is_named_and_the_next_is_asked() -> None:
    garbled = _only(wire.Kind.OPEN, lambda r: {h: b"garbage" if h == 0 else f for h, f in r.items()})
    federation = Federation(encrypted(1, "shared"), meddle=garbled)
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert "Client 0 sent a damaged reply" in total.notes[0]
    assert _asked(federation) == [[0], [1]]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"garbage", "Key holder {} sent a damaged reply"),
        (wire.pack(wire.Kind.KEY, SETUP, b""), "Key holder {} has another public key"),
        (
            wire.pack(wire.Kind.KEY, SETUP, bytes(32) + b"{}"),
            "Key holder {} has another public key",
        ),
        (wire.pack_failure(SETUP, wire.Failure.KEY), "Key holder {} failed in round 0"),
    ],
)
def test_a_holder_that_answers_garbage_when_asked_for_the_key_does_not_stop_the_run(sent: bytes, words: str) -> None:
    liars = (-2, -4)  # as many as three of five can do without
    changed = _only(wire.Kind.KEY, lambda replies: {**replies, **dict.fromkeys(liars, sent)})
    federation = Federation(_parts(), meddle=changed)
    total = federation.sum()
    np.testing.assert_allclose(total.vector, federation.exact, atol=1e-6)
    assert [note.startswith(words.format(-liar)) for note, liar in zip(total.notes, liars, strict=True)] == [True, True]
    assert all(note.endswith("The run goes on without it.") for note in total.notes)
    three = _only(wire.Kind.KEY, lambda replies: {**replies, **dict.fromkeys((*liars, -5), sent)})
    with pytest.raises(TacitError):
        Federation(_parts(), meddle=three).ready()
