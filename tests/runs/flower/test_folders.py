from __future__ import annotations

from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.runs.config import RunConfig
from tacit.runs.flower.server import Deployed, _in_new_folder, configuration
from tests.engines.flower.common import grid
from tests.runs.common import Watching


def test_an_app_that_is_run_again_gets_another_folder(tmp_path: Path) -> None:
    watching = Watching()
    first = _in_new_folder(configuration({"out": "runs/a"}), 7, watching)
    assert first.out == tmp_path / "runs" / "a"
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "journal.jsonl").touch()
    second = _in_new_folder(configuration({"out": "runs/a"}), 7, watching)
    assert second.out == tmp_path / "runs" / "a-7"
    assert watching.notes == [f"The run is kept in {made.out}." for made in (first, second)]


def test_a_run_that_is_not_kept_says_so() -> None:
    watching = Watching()
    assert _in_new_folder(configuration({}), 7, watching).out is None
    assert watching.notes == ["The run is not kept: set out, the server's folder for it."]


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"federate.drop": 0.1}, "these clients are real"), ({"data.name": "femnist"}, "federate.clients has to be set")],
)
def test_what_real_nodes_can_not_do_is_refused(settings: dict[str, float | str], what: str) -> None:
    config: RunConfig = configuration(settings)
    with pytest.raises(ConfigError, match=what):
        Deployed(grid=grid({}), config=config, observer=Watching())
