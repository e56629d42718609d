from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import paillier
from tacit.crypto.paillier import Layout
from tacit.errors import KeysError, WireError
from tacit.protocols.paillier import Caution, Rules
from tests.protocols.paillier.run import LENGTH, Run, holders_of, opens, refused
from tests.protocols.test_conformance import key_pair, layout

ALL = pytest.mark.parametrize("keys", ["authority", "threshold", "shared"])
BOUND = pytest.mark.parametrize("keys", ["authority", "threshold"])
RULES = Rules(minimum_clients=3, rounds=9)


def _run(keys: str, **settings: object) -> Run:
    return Run(keys, clients=4, rules=RULES, **settings)  # type: ignore[arg-type]


@ALL
def test_a_sum_of_enough_clients_is_opened_once_a_round(keys: str) -> None:
    run = _run(keys)
    for number in (1, 2, 5):
        assert not isinstance(run.open([0, 1, 2], number), str)


@ALL
@pytest.mark.parametrize("clients", [[1], [1, 2]])
def test_a_sum_of_too_few_is_refused(keys: str, clients: list[int]) -> None:
    run = _run(keys)
    assert refused(run.open(clients), f"a sum of {len(clients)} vectors was not opened, expected at least 3")
    assert not isinstance(run.open([0, 1, 2]), str)  # a refusal uses up nothing


@ALL
@pytest.mark.parametrize("attempt", [0, 1])
def test_a_second_sum_of_a_round_is_refused(keys: str, attempt: int) -> None:
    run = _run(keys)
    run.open([0, 1, 2])
    again = {client: run.reply(client, 1, attempt) for client in range(4)}
    assert refused(run.ask(run.opening(again), 1, attempt), "a second sum for round 1 was not opened")


@ALL
def test_a_sum_of_an_earlier_round_is_refused(keys: str) -> None:
    run = _run(keys)
    run.open([0, 1, 2], 7)
    assert isinstance(run.open([0, 1, 2], 6), str)


@ALL
def test_a_round_that_was_tried_again_is_opened(keys: str) -> None:
    run = _run(keys)
    replies = {client: run.reply(client, 1, 2) for client in range(3)}
    assert not isinstance(run.ask(run.opening(replies), 1, 2), str)


@ALL
def test_another_layout_than_the_settings_give_is_refused(keys: str) -> None:
    def wider(length: int, key_bits: int) -> Layout:
        return Layout.floats(length=length, clip=9.0, bits=30, summands=16, key_bits=key_bits)

    run = _run(keys)
    run.protocol = replace(run.protocol, layout=wider)
    assert refused(run.open([0, 1, 2]), "another layout than this key holder's settings give")


@ALL
def test_another_layout_than_before_is_refused(keys: str) -> None:
    run = _run(keys, holders=holders_of(keys, Caution(rules=RULES)))
    assert not isinstance(run.open([0, 1, 2]), str)
    run.vectors = [np.zeros(LENGTH + 1, np.float32)] * 4
    assert refused(run.open([0, 1, 2], 2), "another layout than those of earlier rounds")


def test_a_sum_of_another_key_is_refused() -> None:
    stranger, _ = paillier.generate(bits=256, insecure_key_size=True)
    run = _run("authority")
    opening = run.opening({client: run.reply(client) for client in range(3)})
    foreign = stranger.encrypt(np.zeros(LENGTH), layout(LENGTH, 256)) * 3
    assert refused(run.ask(replace(opening, vectors=[foreign.to_bytes()])), "encrypted with key")


@ALL
def test_a_damaged_ciphertext_is_refused(keys: str) -> None:
    run = _run(keys)
    opening = run.opening({client: run.reply(client) for client in range(3)})
    damaged = bytearray(opening.vectors[0])
    damaged[-1] ^= 1
    assert isinstance(run.ask(replace(opening, vectors=[bytes(damaged), *opening.vectors[1:]])), str)


@pytest.mark.parametrize("keys", ["authority", "shared"])
def test_a_forged_sum_tells_nothing_of_its_content(keys: str) -> None:
    """A slot pushed beyond its range must not come back in the words of the refusal; a share has no content to tell."""
    run = _run(keys)
    key, opening = run.session.key, run.opening({client: run.reply(client) for client in range(3)})
    honest = run.added([bytes(opening.vectors[0])])
    push = sum(1 << (honest.layout.slot_bits * (slot + 1) - 1) for slot in range(honest.layout.slots - 1))
    rows = key.ring.affine([(honest.rows, 1)], 0, times=np.repeat(key.encrypt(push).row, len(honest.rows), 0))
    said = run.ask(replace(opening, vectors=[replace(honest, rows=rows).to_bytes()]))
    assert refused(said, "nothing of it is told")
    assert not any(character.isdigit() for character in str(said))
    assert isinstance(run.ask(opening), str)  # the round is used up: no second guess


@ALL
def test_the_public_key_is_told_and_nothing_else_is_answered(keys: str) -> None:
    for holder in _run(keys).holders.values():
        request = wire.unpack(wire.pack(wire.Kind.KEY, wire.Turn(round_number=0), b""))
        assert wire.unpack(holder.answer(request)).kind is wire.Kind.KEY
        with pytest.raises(WireError, match="a key holder does nothing else"):
            holder.answer(wire.unpack(wire.pack(wire.Kind.CIPHER, wire.Turn(round_number=0), b"")))


@ALL
def test_a_holder_that_starts_anew_remembers_its_run(keys: str) -> None:
    run = _run(keys)
    opening = run.opening({client: run.reply(client) for client in range(3)})
    opens(run.ask(opening), run.exact([0, 1, 2]))
    for party, holder in list(run.holders.items()):
        run.holders[party] = holders_of(keys, Caution(rules=RULES, layout=layout, memory=holder.memory))[party]
    opens(run.ask(opening), run.exact([0, 1, 2]))
    assert isinstance(run.open([0, 1, 2, 3]), str)  # a second sum of the round
    opens(run.open([0, 1, 2], 2), run.exact([0, 1, 2]))


@BOUND
def test_a_holder_that_was_not_asked_for_the_key_knows_no_run(keys: str) -> None:
    for holder in holders_of(keys, Caution(rules=RULES)).values():
        assert holder.memory == b""
        frame = wire.unpack(holder.answer(wire.unpack(wire.pack(wire.Kind.ADMIT, wire.Turn(round_number=0), bytes(4)))))
        assert "another run than this key holder's" in wire.unpack_failure(frame)[1]


def test_a_client_that_shares_the_key_keeps_its_rounds_when_it_is_asked_for_the_key_again() -> None:
    """Nothing binds ciphertexts there, so what was opened must not be forgotten."""
    run = _run("shared")
    run.open([0, 1, 2])
    Run("shared", clients=4, rules=RULES, holders=run.holders)
    assert refused(run.open([0, 1, 2, 3]), "a second sum for round 1")


@pytest.mark.parametrize("memory", [b"{", b"[]", b'{"minimum": 1}', b'{"minimum":1,"rounds":1,"challenge":"x"}', b"7"])
def test_a_damaged_memory_is_refused(memory: bytes) -> None:
    with pytest.raises(KeysError, match="can't be read"):
        holders_of("authority", Caution(rules=RULES, memory=memory))


def test_a_memory_shows_no_key() -> None:
    run = _run("authority")
    private = key_pair()[1]
    assert all(f"{secret:x}".encode() not in run.holders[-1].memory for secret in (private.p, private.q))
