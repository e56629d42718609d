"""Every frame of an encrypted run is read once by the party it is for, and so is every ciphertext in it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

import tacit
from tacit import wire
from tacit.crypto.paillier import CiphertextVector

CLIENTS, ROUNDS = 4, 2
KEYS: dict[str, dict[str, Any]] = {"authority": {}, "threshold": {"shares": "2/3"}}


@pytest.mark.parametrize("keys", KEYS)
def test_every_frame_is_read_once_by_its_party(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    frames: Counter[wire.Kind] = Counter()
    vectors: list[int] = []
    unpack, of = wire.unpack, CiphertextVector.of

    def counted(data: bytes) -> wire.Frame:
        frame = unpack(data)
        frames[frame.kind] += 1
        return frame

    def read(data: memoryview, *given: Any, **options: Any) -> CiphertextVector:
        vectors.append(len(data))
        return of(data, *given, **options)

    monkeypatch.setattr(wire, "unpack", counted)
    monkeypatch.setattr(CiphertextVector, "of", read)
    tacit.run(
        tacit.RunConfig(
            mode="paillier",
            data={"name": "digits"},
            seed=1,
            federate={"clients": CLIENTS, "rounds": ROUNDS},
            paillier={"bits": 256, "insecure_key_size": True, "keys": keys, **KEYS[keys]},
        )
    )
    holders, opening = (1, 1) if keys == "authority" else (3, 2)
    assert frames == {
        wire.Kind.KEY: 2 * holders,  # a holder its request, and the server its answer
        wire.Kind.ENROL: 1 + CLIENTS,  # clients in one process read what was sent to all of them together
        wire.Kind.ADMIT: 2 * holders,
        wire.Kind.TASK: ROUNDS,
        wire.Kind.CIPHER: ROUNDS * CLIENTS,
        wire.Kind.OPEN: ROUNDS * opening,
        wire.Kind.OPENED: ROUNDS * opening,
    }
    shown = 1 if keys == "authority" else opening * CLIENTS  # the sum, or to each holder every client's
    assert len(vectors) == ROUNDS * (CLIENTS + shown)
