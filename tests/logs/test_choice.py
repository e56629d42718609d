from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit.logs.choice import NAMES, check, opened
from tacit.logs.log import Ending


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_package_is_said_with_its_extra(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check([name], folder=tmp_path)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=rf"pip install 'tacit\[{name}\]'"):
        check([name], folder=tmp_path)


def test_what_can_not_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="log=wandb does not work: expected tensorboard or mlflow"):
        check(["wandb"], folder=None)
    with pytest.raises(ConfigError, match=r"this run has none\. Set out"):
        check(["tensorboard"], folder=None)
    check(["mlflow"], folder=None)
    check([], folder=None)


def test_a_log_that_never_began_ends_without_a_word(tmp_path: Path) -> None:
    logs = opened(["tensorboard", "mlflow", "mlflow"], folder=tmp_path)
    assert len(logs) == 2
    for log in logs:
        log.end(Ending(status="failed", values={}, texts={}))
        assert log.failure() is None
    assert list(tmp_path.iterdir()) == [tmp_path / "lonely-cache"] or not list(tmp_path.iterdir())
