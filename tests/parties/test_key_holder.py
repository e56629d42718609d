"""A key holder at a node: what it keeps in files, and what its own operator decides."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tacit import wire
from tacit.config.sections import Paillier
from tacit.crypto import keyfile
from tacit.errors import KeysError
from tacit.flow import ClientId
from tacit.parties import key_holder as holder
from tacit.parties.operator import clients_of, floor_of, identity_of, private_file
from tacit.protocols.paillier import Caution, Rules, ShareHolder, blocks
from tests.protocols.paillier.run import Run, opens, refused
from tests.protocols.test_conformance import key_pair, key_shares

RULES = Rules(minimum_clients=3, rounds=6)
TURN = wire.Turn(round_number=1)


class OnDisk:
    """A key holder whose key and memory are files: each answer is a process that starts anew."""

    def __init__(self, key: Path, keys: str = "authority", run_id: int = 5, **node: Any) -> None:
        self.key, self.node, self.run_id = key, node, run_id
        self.settings = Paillier(insecure_key_size=True, keys=keys)
        self.rules = RULES

    def answer(self, request: wire.Frame) -> bytes:
        from tacit.protocols.paillier import PaillierSum
        from tests.protocols.test_conformance import layout

        protocol = PaillierSum(
            minimum_clients=self.rules.minimum_clients, rounds=self.rules.rounds, layout=layout, keys=self.settings.keys
        )
        node = {name.replace("_", "-"): value for name, value in self.node.items()}
        return holder.answer(
            request, key=self.key, settings=self.settings, protocol=protocol, run_id=self.run_id, node=node
        )

    @property
    def memory(self) -> bytes:
        return self.key.with_name(f"{self.key.name}.opened-{self.run_id}").read_bytes()


def _run(on_disk: Mapping[ClientId, OnDisk], keys: str = "authority", **settings: Any) -> Run:
    return Run(keys, rules=RULES, holders=on_disk, **settings)  # type: ignore[arg-type]


@pytest.fixture
def key(tmp_path: Path) -> Path:
    keyfile.save(tmp_path / "private.key", key_pair()[1])
    return tmp_path / "private.key"


def test_a_second_sum_of_a_round_is_not_opened_by_a_process_that_starts_anew(key: Path) -> None:
    run = _run({-1: OnDisk(key)})
    opening = run.opening({client: run.reply(client) for client in range(3)})
    for _ in range(2):  # the same one again: an answer may be lost
        opens(run.ask(opening), run.exact(range(3)))
    assert refused(run.open(range(4)), "a second sum for round 1 was not opened")
    opens(run.open(range(4), 2), run.exact(range(4)))


def test_a_new_run_opens_nothing_of_an_earlier_one(key: Path) -> None:
    """The review's attack: another number of the run, and the holder had forgotten what it opened."""
    run = _run({-1: OnDisk(key)})
    replies = run.replies()
    opens(run.ask(run.opening(replies)), run.exact(range(4)))
    del replies[3]
    later = _run({-1: OnDisk(key, run_id=6)})
    assert refused(later.ask(later.opening(replies)), "nothing of it is told")
    run.holders = {-1: OnDisk(key, run_id=7)}  # type: ignore[dict-item]
    assert refused(run.ask(run.opening(replies)), "not enrolled")
    assert refused(run.ask(run.opening(replies), 2), "not enrolled")


def test_every_run_has_its_own_rounds(key: Path) -> None:
    runs = [_run({-1: OnDisk(key, run_id=run_id)}) for run_id in (5, 6)]
    opens(runs[0].open(range(4), 4), runs[0].exact(range(4)))
    opens(runs[1].open(range(4), 1), runs[1].exact(range(4)))


def test_a_lost_memory_costs_the_run_and_nothing_else(key: Path) -> None:
    run = _run({-1: OnDisk(key)})
    replies = run.replies()
    run.ask(run.opening(replies))
    (key.parent / "private.key.opened-5").unlink()
    del replies[3]
    assert refused(run.ask(run.opening(replies)), "not enrolled")


def test_rules_that_were_told_first_hold(key: Path) -> None:
    on_disk = OnDisk(key)
    run = _run({-1: on_disk})
    on_disk.rules = replace(RULES, minimum_clients=2)
    assert refused(run.open([0, 1]), "the run began with")


def test_what_a_holder_knows_is_on_disk_for_its_owner_alone(key: Path) -> None:
    _run({-1: OnDisk(key)})
    (memory,) = key.parent.glob("private.key.opened-5")
    assert memory.stat().st_mode & 0o777 == 0o600


def test_a_damaged_memory_opens_nothing(key: Path) -> None:
    run = _run({-1: OnDisk(key)})
    (key.parent / "private.key.opened-5").write_bytes(b'{"round": 1')
    with pytest.raises(KeysError, match="memory of what it has opened can't be read"):
        run.open(range(4))


def test_of_many_requests_at_once_one_is_opened(key: Path) -> None:
    run = _run({-1: OnDisk(key)})
    asked = [run.opening(run.replies()) for _ in range(6)]
    given: list[Any] = []
    threads = [threading.Thread(target=lambda one=one: given.append(run.ask(one))) for one in asked]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(isinstance(one, str) for one in given) == [False] + [True] * 5


def test_shares_give_their_parts(tmp_path: Path) -> None:
    on_disk = {}
    for share in key_shares():
        keyfile.save(tmp_path / f"share-{share.index}.key", share)
        on_disk[-share.index] = OnDisk(tmp_path / f"share-{share.index}.key", keys="threshold")
    run = _run(on_disk, "threshold")
    opens(run.open(range(4)), run.exact(range(4)))


def test_a_sum_in_blocks_is_fixed_on_disk_by_the_first_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block is answered by a process that starts anew: it knows the sum by what the first one wrote."""
    monkeypatch.setattr(blocks, "FRAME_BYTES", 1)
    monkeypatch.setattr(blocks, "LEAST_ROWS", 1)
    keyfile.save(tmp_path / "share.key", key_shares()[0])
    first = OnDisk(tmp_path / "share.key", keys="threshold")
    rest = {-s.index: ShareHolder(share=s, caution=Caution(rules=RULES)) for s in key_shares()[1:]}
    run = _run({-1: first, **rest}, "threshold")  # type: ignore[dict-item]
    replies = run.replies()
    whole, part = run.opening(replies), run.opening({client: replies[client] for client in range(3)})
    asked = [wire.unpack(wire.pack(wire.Kind.OPEN, TURN, one.to_bytes(n))) for one in (whole, part) for n in range(3)]
    enrolled = first.memory
    kinds = [wire.unpack(first.answer(asked[0])).kind]
    fixed = first.memory
    written = tmp_path.joinpath("share.key.opened-5").stat().st_ino
    kinds += [wire.unpack(first.answer(one)).kind for one in asked[1:]]
    assert kinds == [wire.Kind.OPENED] * 3 + [wire.Kind.FAILURE] * 3
    assert enrolled != fixed == first.memory
    assert tmp_path.joinpath("share.key.opened-5").stat().st_ino == written  # later blocks write nothing
    opens(run.ask(whole), run.exact(range(4)))


# What the holder's operator decides


def test_the_operators_floor_holds_whatever_the_settings_say(key: Path) -> None:
    run = _run({-1: OnDisk(key, tacit_minimum=4)})
    assert refused(run.open(range(3)), "a sum of 3 vectors was not opened, expected at least 4")
    opens(run.open(range(4)), run.exact(range(4)))


@pytest.mark.parametrize("given", [0, -1, "two", True, 2.0])
def test_a_floor_that_is_none_is_refused(given: Any) -> None:
    with pytest.raises(KeysError, match="tacit-minimum"):
        floor_of({"tacit-minimum": given})


def test_a_floor_is_two_unless_the_operator_says_otherwise() -> None:
    assert (floor_of({}), floor_of({"tacit-minimum": 1})) == (2, 1)


def _identity(path: Path) -> Ed25519PrivateKey:
    """Make an identity as ssh-keygen does."""
    made = Ed25519PrivateKey.generate()
    encoding = serialization.Encoding
    private = made.private_bytes(encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    path.write_bytes(private)
    path.chmod(0o600)
    public = made.public_key().public_bytes(encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b" clinic\n")
    return made


def test_only_listed_clients_are_admitted(key: Path, tmp_path: Path) -> None:
    for name in ("zero", "one", "two"):
        _identity(tmp_path / name)
    listed = "".join((tmp_path / f"{name}.pub").read_text() for name in ("zero", "one", "two"))
    (tmp_path / "clients.pub").write_text(f"# the three clinics\n\n{listed}")
    identities = {c: identity_of({"tacit-identity": str(tmp_path / n)}) for c, n in enumerate(("zero", "one", "two"))}
    run = _run({-1: OnDisk(key, tacit_clients=str(tmp_path / "clients.pub"))}, identities=identities)
    assert run.session.members(range(4)) == [0, 1, 2]
    assert "Client 3 was not admitted" in run.session.reasons[3]
    opens(run.open(range(3)), run.exact(range(3)))


def test_an_identity_that_can_not_be_used_is_refused(tmp_path: Path) -> None:
    _identity(tmp_path / "one")
    (tmp_path / "one").chmod(0o644)
    with pytest.raises(KeysError, match=r"mode 644"):
        identity_of({"tacit-identity": str(tmp_path / "one")})
    (tmp_path / "two").write_text("nothing")
    (tmp_path / "two").chmod(0o600)
    with pytest.raises(KeysError, match="expected an Ed25519 key"):
        identity_of({"tacit-identity": str(tmp_path / "two")})
    with pytest.raises(KeysError, match="tacit-identity in the node's config"):
        identity_of({"tacit-identity": str(tmp_path / "none")})
    assert identity_of({}) is None


@pytest.mark.parametrize("text", ["ssh-ed25519 nothing", "0 clinic", "ssh-rsa AAAA"])
def test_a_list_of_clients_that_can_not_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "clients.pub").write_text(text)
    with pytest.raises(KeysError, match="tacit-clients"):
        clients_of({"tacit-clients": str(tmp_path / "clients.pub")})


def test_a_list_of_clients_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"tacit-clients=.*a file that can be read"):
        clients_of({"tacit-clients": str(tmp_path / "none")})
    assert clients_of({}) is None


def test_a_missing_key_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeysError, match=r"no\.key can't be read: No such file.*tacit-key"):
        private_file(tmp_path / "no.key")


def test_a_request_that_is_none_changes_nothing(key: Path) -> None:
    on_disk = OnDisk(key)
    _run({-1: on_disk})
    before = on_disk.memory
    frame = wire.unpack(on_disk.answer(wire.unpack(wire.pack(wire.Kind.OPEN, wire.Turn(round_number=1), b"\xff" * 60))))
    assert frame.kind is wire.Kind.FAILURE
    assert on_disk.memory == before
