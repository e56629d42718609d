from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from tacit import wire
from tacit.crypto import keyfile, paillier
from tacit.errors import KeysError
from tacit.protocols.paillier import PaillierSum
from tacit.runs.flower import holder
from tacit.runs.sections import Paillier
from tests.protocols.test_conformance import key_pair, key_shares, layout

SETTINGS = Paillier(insecure_key_size=True)
PROTOCOL = PaillierSum(minimum_clients=3, layout=layout)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    keyfile.save(tmp_path / "private.key", key_pair()[1])
    return tmp_path / "private.key"


def _sum(summands: int = 3, value: float = 0.5) -> paillier.CiphertextVector:
    public = key_pair()[0]
    return public.encrypt(np.full(20, value), layout(20, public.bits)) * summands


def _open(key: Path, vector: paillier.CiphertextVector, *, round_number: int = 1, run_id: int = 5) -> wire.Frame:
    request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=round_number), vector.to_bytes())
    return wire.unpack(holder.answer(request, key=key, settings=SETTINGS, protocol=PROTOCOL, run_id=run_id))


def test_a_second_sum_of_a_round_is_not_opened_by_a_process_that_starts_anew(key: Path) -> None:
    first = _sum()
    assert _open(key, first).kind is wire.Kind.OPENED
    assert _open(key, first).kind is wire.Kind.OPENED  # the same one again: an answer may be lost
    refused = _open(key, _sum(value=0.25))
    assert refused.kind is wire.Kind.FAILURE
    assert "a second sum for round 1 was not opened" in bytes(refused.body).decode()
    assert _open(key, _sum(), round_number=2).kind is wire.Kind.OPENED


def test_every_run_has_its_own_rounds(key: Path) -> None:
    assert _open(key, _sum(), round_number=4).kind is wire.Kind.OPENED
    assert _open(key, _sum(), run_id=6).kind is wire.Kind.OPENED


def test_too_few_summands_are_not_opened_and_not_remembered(key: Path) -> None:
    assert _open(key, _sum(summands=2)).kind is wire.Kind.FAILURE
    assert _open(key, _sum()).kind is wire.Kind.OPENED


def test_what_was_opened_is_on_disk_for_its_owner_alone(key: Path) -> None:
    _open(key, _sum())
    (memory,) = key.parent.glob("private.key.opened-5")
    assert memory.stat().st_mode & 0o777 == 0o600


def test_a_damaged_memory_opens_nothing(key: Path) -> None:
    _open(key, _sum())
    (key.parent / "private.key.opened-5").write_bytes(b'{"round": 1')
    with pytest.raises(KeysError, match="memory of what it has opened can't be read"):
        _open(key, _sum(), round_number=2)


def test_of_many_requests_at_once_one_is_opened(key: Path) -> None:
    kinds: list[wire.Kind] = []
    sums = [_sum(value=0.1 * number) for number in range(6)]
    threads = [threading.Thread(target=lambda one=one: kinds.append(_open(key, one).kind)) for one in sums]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(kinds) == [wire.Kind.FAILURE] * 5 + [wire.Kind.OPENED]


def test_a_share_gives_its_part(tmp_path: Path) -> None:
    share = key_shares()[0]
    keyfile.save(tmp_path / "share.key", share)
    public = share.public.key
    vector = public.encrypt(np.full(20, 0.5), layout(20, public.bits)) * 3
    request = wire.pack(wire.Kind.OPEN, wire.Turn(round_number=1), vector.to_bytes())
    settings = Paillier(insecure_key_size=True, keys="threshold")
    frame = holder.answer(request, key=tmp_path / "share.key", settings=settings, protocol=PROTOCOL, run_id=5)
    assert wire.unpack(frame).kind is wire.Kind.OPENED


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"no\.key can't be read: No such file.*tacit-key"):
        holder.private_file(tmp_path / "no.key")
