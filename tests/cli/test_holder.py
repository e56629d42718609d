from __future__ import annotations

from pathlib import Path

import pytest

from tacit import wire
from tacit.holder.process import KeyHolder
from tacit.protocols.paillier import Rules
from tacit.protocols.paillier.session import SETUP
from tests.cli.common_crypto import INSECURE, Tacit

pytestmark = pytest.mark.usefixtures("tmp_path")  # the commands write where they stand

KEY = ("keys", "new", "paillier", "--bits", "512", INSECURE)
INIT = ("holder", "init", "--key", "keys/private.key", "--clients", "clients.pub", "--minimum-clients", "3", INSECURE)


@pytest.fixture
def prepared(tacit_command: Tacit) -> Tacit:
    """Return the command where a key and a list of clients lie."""
    tacit_command.done(*KEY)
    for name in ("a", "b", "c"):
        tacit_command.done("keys", "identity", name, "--out", f"{name}.key")
    Path("clients.pub").write_text("".join(Path(f"{name}.key.pub").read_text() for name in ("a", "b", "c")))
    return tacit_command


def test_a_folder_is_made_checked_and_says_what_it_allows(prepared: Tacit) -> None:
    assert "is not sealed" in prepared.refused(*INIT)
    assert not Path("holder").exists()
    prepared.done(*INIT, "--unsealed")
    assert "never replaced" in prepared.refused(*INIT, "--unsealed")
    said = prepared.done("holder", "check", "holder")
    assert (
        "Allowed: sums of 3 or more of 3 clients that are listed, one per round, in runs of up to 500 rounds." in said
    )
    assert "by 1 to 2" in said
    assert "Spent: 0 of 2000 openings" in said
    holder = KeyHolder(Path("holder"))
    holder.answer(wire.pack(wire.Kind.KEY, SETUP, Rules(minimum_clients=2, rounds=5).to_bytes()))
    holder.close()
    assert "refused KEY: the run is announced with sums of 2 clients or more" in prepared.done(
        "holder", "check", "holder"
    )
    facts = prepared.json("holder", "check", "holder")
    assert (facts["opened"], facts["refused"], facts["last_refused"][0]["kind"]) == (0, 1, "KEY")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (("--clients", "nobody"), "nobody can't be read"),
        (("--key", "keys/public.key"), "expected a private Paillier key or a share"),
        (("--differences", "pair"), "expected one of pairs, chains, none"),
        (("--minimum-clients", "4"), "lists 3 clients"),
    ],
)
def test_a_folder_that_could_not_work_is_not_made(prepared: Tacit, changed: tuple[str, ...], words: str) -> None:
    assert words in prepared.refused(*INIT, "--unsealed", *changed)
    assert not Path("holder").exists()
