from __future__ import annotations

import io
from pathlib import Path

import pytest
import typer
from rich.console import Console

from tacit.cli import watching as cli
from tacit.cli.watching import watching
from tacit.studies.plan import Axis, of_grid
from tacit.studies.results import Repeat


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Make every stream a terminal, and return what it gets."""
    shown = io.StringIO()
    monkeypatch.setattr(cli, "console", lambda **_: Console(file=shown, force_terminal=True, width=100))
    return shown


def test_the_bar_says_what_is_being_done_as_it_is(screen: io.StringIO) -> None:
    with watching() as watch:
        watch.work("report-000")("keys [a, b]", done=3, total=7)
    assert "report-000" in screen.getvalue()
    assert "keys [a, b] 3/7" in screen.getvalue()


def test_a_search_counts_its_primes(screen: io.StringIO) -> None:
    with watching() as watch:
        for tested in (10, 900, 5):
            watch.search(tested, 1000.0)
    assert "safe prime 2" in screen.getvalue()
    assert "5 candidates tested, 1,000 in the mean" in screen.getvalue()


def test_a_study_is_a_bar_of_all_rounds(screen: io.StringIO) -> None:
    study = of_grid({"federate": {"rounds": 2}}, [Axis(key="optimizer.lr", values=(0.1, 0.2))])
    with watching() as watch:
        done, moved = watch.study(study)
        moved(1, 1)
        done(0, Repeat(name=study.runs[0].name, folder="a", seed=None, error="by design"))
        moved(1, 1)
    assert "run 1/2  optimizer.lr=0.1  failed: by design" in screen.getvalue()
    assert "3/4  optimizer.lr=0.2 2/2" in screen.getvalue()  # the run that is in flight, not the one that has ended


def test_nothing_is_shown_before_it_is_told_of_or_when_quiet(screen: io.StringIO) -> None:
    with watching():
        pass
    with watching(quiet=True) as watch:
        watch.work("report-000")("keys")
        watch.search(1, 2.0)
    assert screen.getvalue() == ""


def test_ctrl_c_is_an_end_where_one_can_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, watching(again="go on with: tacit resume [a]"):
        raise KeyboardInterrupt
    assert ended.value.exit_code == 130
    assert capfd.readouterr().err == "Stopped. What is done is kept; go on with: tacit resume [a]\n"
    with pytest.raises(typer.Exit), watching(again="go on with: tacit resume a", folder=tmp_path / "a"):
        raise KeyboardInterrupt
    assert capfd.readouterr().err == "Stopped before the run began; nothing was written.\n"
    with pytest.raises(KeyboardInterrupt), watching():
        raise KeyboardInterrupt
