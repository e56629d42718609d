from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.config.run_config import RunConfig, from_mapping
from tacit.crypto import keyfile
from tacit.errors import ConfigError, RunError
from tacit.flower.deploy.nodes import clear, nodes_of, runnable, unfinished
from tacit.holder.process import known_clients
from tacit.holder.settings import Settings
from tacit.modes.catalogue import resolve
from tacit.parties.operator import pin_of
from tacit.runs.folder import RunFolder
from tacit.runs.journal import End
from tacit.runs.run import run
from tacit.site.contract import read
from tests.runs.common import STARTED, digits

SMALL = {"bits": 512, "insecure_key_size": True}


def _config(**values: Any) -> RunConfig:
    return from_mapping({"data": {"name": "digits"}, "federate": {"clients": 2}, "out": "run", **values})


def test_every_client_is_a_node_that_carries_frames_to_its_site(tmp_path: Path) -> None:
    nodes = nodes_of(resolve(_config()), tmp_path)
    assert nodes == {
        f"client-{number}": {"partition-id": number, "tacit-socket": str(tmp_path / f"site-{number}" / "socket")}
        for number in range(2)
    }
    contract = read(tmp_path / "site-1")
    assert (contract.number, contract.simulation, contract.rules.modes) == (1, False, ("plain",))
    assert read(_seeded(tmp_path / "seeded")).simulation


def _seeded(folder: Path) -> Path:
    nodes_of(resolve(_config(seed=1)), folder)
    return folder / "site-1"


@pytest.mark.parametrize(
    ("settings", "holders", "files"),
    [
        ({}, ["holder-1"], ["private.key", "public.key"]),
        (
            {"keys": "threshold", "shares": "2/2"},
            ["holder-1", "holder-2"],
            ["public.key", "share-1.key", "share-2.key"],
        ),
        ({"keys": "shared"}, [], ["private.key", "public.key"]),
    ],
)
def test_every_key_holder_is_a_node_and_clients_pin_the_key(
    tmp_path: Path, settings: dict[str, Any], holders: list[str], files: list[str]
) -> None:
    config = _config(mode="paillier", paillier=SMALL | settings)
    nodes = nodes_of(resolve(config), tmp_path)
    assert list(nodes) == ["client-0", "client-1", *holders]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == files
    secret = [path for path in tmp_path.iterdir() if path.is_file() and path.name != "public.key"]
    assert {path.stat().st_mode & 0o777 for path in secret} == {0o600}
    held = keyfile.read(secret[0], insecure_key_size=True).public
    encrypts = getattr(held, "key", held)
    for name, told in nodes.items():
        assert ("tacit-key" in told) == (config.paillier.keys == "shared")
        if name in holders:
            rules = Settings.read(Path(str(told["tacit-socket"])).parent)
            assert (rules.minimum_clients, rules.rounds, len(known_clients(rules))) == (2, 6, 2)
            assert rules.key in secret
        else:
            site = Path(str(told["tacit-socket"])).parent if "tacit-socket" in told else None
            pin = told["tacit-pin"] if site is None else str(read(site).keys.pin)
            assert pin_of({"tacit-pin": pin}, config.paillier) == encrypts.identity


def test_keys_that_are_there_are_used(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    second.mkdir()
    nodes_of(resolve(_config(mode="paillier", paillier=SMALL)), first)
    again = _config(mode="paillier", paillier={**SMALL, "key": str(first / "private.key")})
    assert nodes_of(resolve(again), second)["holder-1"] == {"tacit-socket": str(second / "holder-1" / "socket")}
    assert Settings.read(second / "holder-1").key == first / "private.key"
    assert (second / "public.key").read_text() == (first / "public.key").read_text()


def test_paths_are_whole_and_all_split_alike(tmp_path: Path) -> None:
    config = runnable(_config(data={"name": "digits", "folder": "files"}))
    assert (config.out, config.data.folder) == (tmp_path / "run", tmp_path / "files")
    assert (config.engine, config.data.split_seed) == ("flower", 0)
    assert runnable(_config(seed=3)).data.split_seed is None


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"federate": {"drop": 0.5}}, "federate.drop=0.5 simulates drop-outs"),
        ({"federate": {}, "data": {"name": "femnist"}}, "federate.clients has to be set"),
        ({"mode": "dp"}, "dp.noise"),
        ({"out": None}, "out has to be set"),
    ],
)
def test_what_can_not_work_is_refused(values: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        runnable(_config(**values))


def test_another_run_is_replaced_on_demand_only(tmp_path: Path) -> None:
    out = tmp_path / "run"
    folder = RunFolder.create(out, config="", force=False)
    folder.journal.append(STARTED)
    folder.close()
    with pytest.raises(RunError, match="holds another run"):
        clear(out, force=False)
    clear(out, force=True)
    assert list(out.iterdir()) == []
    clear(tmp_path / "new", force=True)
    assert not (tmp_path / "new").exists()


def test_a_deployment_that_was_not_finished_may_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    folder = RunFolder.create(out, config="", force=False)
    folder.journal.append(replace(STARTED, deployed=True))
    folder.close()
    assert unfinished(out)
    clear(out, force=False)
    assert (out / "journal.jsonl").read_text() != ""
    folder = RunFolder.open(out)
    folder.journal.append(End(rounds=0))
    folder.close()
    assert unfinished(out), "without a result it is not complete"
    run(digits(out=tmp_path / "other"))
    shutil.copy(tmp_path / "other" / "result.json", out)
    with pytest.raises(RunError, match="holds another run"):
        clear(out, force=False)


def test_a_run_in_progress_is_not_replaced(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", config="", force=False)
    with pytest.raises(RunError, match="in use by another process"):
        clear(tmp_path / "run", force=True)
    folder.close()


def test_the_clients_of_a_file_are_counted(tmp_path: Path) -> None:
    (tmp_path / "my.csv").write_text("age,hospital,ill\n1,north,0\n2,south,1\n3,west,1\n")
    data = {"name": str(tmp_path / "my.csv"), "label": "ill", "client": "hospital"}
    assert runnable(_config(data=data, federate={})).federate.clients == 3
    with pytest.raises(ConfigError, match=r"federate\.clients has to be set"):
        runnable(_config(data={"name": "femnist"}, federate={}))
