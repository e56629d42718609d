from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tacit.config.run_config import RunConfig, from_mapping
from tacit.errors import ConfigError, RunError
from tacit.flower.deploy.nodes import clear, nodes_of, runnable, unfinished
from tacit.flower.trial import LocalParties
from tacit.modes.catalogue import resolve
from tacit.runs.folder import RunFolder
from tacit.runs.journal import End
from tacit.runs.run import run
from tests.runs.common import STARTED, digits

SMALL = {"bits": 512, "insecure_key_size": True}


def _config(**values: Any) -> RunConfig:
    return from_mapping({"data": {"name": "digits"}, "federate": {"clients": 2}, "out": "run", **values})


def test_every_party_is_a_node_that_carries_frames_to_its_process() -> None:
    there = LocalParties(resolve(_config(mode="paillier", paillier=SMALL)), at_once=2)
    with there._open:
        assert nodes_of(there) == {
            "client-0": {"partition-id": 0, "tacit-socket": str(there.folder / "site-0" / "socket")},
            "client-1": {"partition-id": 1, "tacit-socket": str(there.folder / "site-1" / "socket")},
            "holder-1": {"tacit-socket": str(there.folder / "holder-1" / "socket")},
        }
    assert not there.folder.exists()


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
