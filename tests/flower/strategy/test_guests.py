"""Key holders that are nodes of their own, with keys in files, as in a real deployment."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.crypto import keyfile, paillier, threshold
from tacit.errors import DropoutError, RunError
from tacit.flower import Private, private_mod
from tacit.flower.strategy.guests import exchange_for
from tacit.holder.new import init
from tacit.holder.process import KeyHolder
from tacit.holder.settings import Settings
from tacit.protocols.signatures import new_identity
from tacit.service import Service
from tests.flower.common import FEW_BITS, app, federation, floats, mean_shift, quiet, start
from tests.holder.common import memory_of

INSECURE: dict[str, Any] = {"insecure_key_size": True}
ENCRYPTED: dict[str, Any] = {"weight_cap": 40, **FEW_BITS}


def _authority(folder: Path, name: str = "private.key") -> tuple[Path, str]:
    public, private = paillier.generate(bits=512, insecure_key_size=True)
    keyfile.save(folder / name, private)
    return folder / name, public.fingerprint


def _real(pin: str, **config: Any) -> Any:
    return federation(tacit_simulation=False, tacit_pin=pin, **config)


def _checked(wrapped: Private, grid: Any, rounds: int = 2) -> None:
    result = wrapped.start(grid, start(), num_rounds=rounds)
    moved = sum(mean_shift(range(4), number) for number in range(1, rounds + 1))
    np.testing.assert_allclose(floats(result.arrays) - floats(start()), moved, atol=1e-5)


def test_an_authority_at_a_node_opens_sums_and_never_trains(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    grid = _real(pin)
    grid.join(200, app(private_mod), tacit_key=str(key))
    _checked(Private(quiet(), mode="paillier", paillier=ENCRYPTED), grid)
    to_holder = [message for message in grid.sent if message.metadata.dst_node_id == 200]
    assert len(to_holder) == 5, "a greeting, the key, the clients, and a sum per round"
    assert not any("arrays" in message.content for message in to_holder)
    secret = keyfile.load_private(key, insecure_key_size=True)
    assert isinstance(secret, paillier.PrivateKey)
    factor = secret.p.to_bytes((secret.p.bit_length() + 7) // 8, "big")
    for answer in grid.answers:
        assert all(
            factor not in array.data for record in answer.content.array_records.values() for array in record.values()
        )
    for context in grid.contexts.values():
        assert factor not in repr(context.state).encode()


def test_an_authority_in_a_process_of_its_own_to_which_a_node_only_carries_frames(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    made = [new_identity(f"client {number}") for number in range(4)]
    (tmp_path / "clients.pub").write_bytes(b"".join(line for _, line in made))
    settings = Settings(key=key, clients=tmp_path / "clients.pub", minimum_clients=2, unsealed=True, **INSECURE)
    init(tmp_path / "holder", settings)
    holder = KeyHolder(tmp_path / "holder")
    grid = _real(pin)
    for number, (secret, _) in enumerate(made):
        path = tmp_path / f"client-{number}.key"
        path.touch(mode=0o600)
        path.write_bytes(secret)
        grid.join(101 + number, app(private_mod), partition_id=number, tacit_pin=pin, tacit_identity=str(path))
    with Service(path=tmp_path / "holder" / "socket", answer=holder.message) as service:
        answering = threading.Thread(target=service.run)
        answering.start()
        grid.join(200, app(private_mod), tacit_socket=str(service.path))
        _checked(Private(quiet(), mode="paillier", paillier=ENCRYPTED), grid)
        service.stop()
        answering.join()
    memory = memory_of(tmp_path / "holder")
    assert [(one.round_number, one.clients) for one in memory.opened] == [(1, 4), (2, 4)]


def test_shares_at_three_nodes_two_of_them_clients(tmp_path: Path) -> None:
    public, shares = threshold.generate(shares=3, threshold=2, bits=512, insecure_key_size=True)
    for share in shares:
        keyfile.save(tmp_path / f"share-{share.index}.key", share)
    keyfile.save(tmp_path / "public.key", public)
    grid = _real(str(tmp_path / "public.key"))
    for number in (0, 1):
        held = str(tmp_path / f"share-{number + 1}.key")
        settings: dict[str, Any] = {"tacit_pin": str(tmp_path / "public.key"), "tacit_key": held}
        grid.join(101 + number, app(private_mod), partition_id=number, **settings)
    grid.join(300, app(private_mod), tacit_key=str(tmp_path / "share-3.key"))
    _checked(Private(quiet(), mode="paillier", paillier={**ENCRYPTED, "keys": "threshold"}), grid)


def test_clients_that_share_the_key(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    _checked(
        Private(quiet(), mode="paillier", paillier={**ENCRYPTED, "keys": "shared"}), _real(pin, tacit_key=str(key))
    )


def test_a_key_that_is_not_the_pinned_one_stops_the_run(tmp_path: Path) -> None:
    key, _ = _authority(tmp_path)
    _, other = _authority(tmp_path, "other.key")
    grid = _real(other)
    grid.join(200, app(private_mod), tacit_key=str(key))
    wrapped = Private(quiet(), mode="paillier", paillier=ENCRYPTED, federate={"retries": 0})
    with pytest.raises(DropoutError, match=r"Client .* failed in round 0: its key file, or the key pinned there"):
        wrapped.start(grid, start(), num_rounds=1)


def test_real_nodes_and_no_key_holder() -> None:
    pin = "ab:" * 31 + "ab"
    wrapped = Private(quiet(), mode="paillier", paillier=ENCRYPTED, flower={"patience": 0.01})
    with pytest.raises(RunError, match=r"Key holder 1 is not there.*tacit-key"):
        wrapped.start(_real(pin), start(), num_rounds=1)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    key.chmod(0o644)
    grid = _real(pin)
    grid.join(200, app(private_mod), tacit_key=str(key))
    with pytest.raises(RunError, match="Node 200 refused: its key file"):
        Private(quiet(), mode="paillier", paillier=ENCRYPTED).start(grid, start(), num_rounds=1)


def test_two_nodes_with_one_key(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    grid = _real(pin)
    for node in (200, 201):
        grid.join(node, app(private_mod), tacit_key=str(key))
    with pytest.raises(RunError, match="Nodes 200 and 201 hold the same key"):
        Private(quiet(), mode="paillier", paillier=ENCRYPTED).start(grid, start(), num_rounds=1)


def test_a_holder_that_goes_away_loses_the_rounds(tmp_path: Path) -> None:
    key, pin = _authority(tmp_path)
    grid = _real(pin)
    grid.join(200, app(private_mod), tacit_key=str(key))
    wrapped = Private(quiet(), mode="paillier", paillier=ENCRYPTED, federate={"retries": 0})

    def gone(answer: Any) -> Any:
        if answer.metadata.src_node_id != 200:
            grid.dead = {200} if any("arrays" in message.content for message in grid.sent) else set()
        return answer

    grid.tamper = gone
    with pytest.raises(DropoutError, match="The sum of round 1 was not opened"):
        wrapped.start(grid, start(), num_rounds=1)


def test_a_protocol_without_keys_needs_no_holders() -> None:
    assert exchange_for.__module__ == "tacit.flower.strategy.guests"
    _checked(Private(quiet(), mode="plain"), federation(tacit_simulation=False))
