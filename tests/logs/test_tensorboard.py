from __future__ import annotations

from pathlib import Path

from tacit.logs.log import About, Ending, Step
from tacit.logs.tensorboard import FOLDER, TensorBoardLog, clear
from tests.logs.reading import scalars, texts

ABOUT = About(name="a", title="Digits", settings={}, config="seed: 1", tags={"mode": "dp"}, folder=None)


def step(number: int, **values: float) -> Step:
    return Step(number=number, at=1000.0 + number, values=values)


def test_rounds_and_texts_are_read_back(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path)
    log.begin(ABOUT, ())
    log.step(step(1, loss=0.5))
    log.step(step(2, loss=0.25, epsilon=8.0))
    assert scalars(tmp_path) == {"loss": [(1, 0.5), (2, 0.25)], "epsilon": [(2, 8.0)]}  # before the end, too
    log.end(Ending(status="finished", values={}, texts={"privacy": "epsilon 8, naïve"}, result="{}"))
    found = texts(tmp_path)
    assert found["privacy"] == "epsilon 8, naïve"
    assert "seed: 1" in found["configuration"]
    assert "| mode | dp |" in found["run"]


def test_a_second_session_writes_every_round_once(tmp_path: Path) -> None:
    first = TensorBoardLog(tmp_path)
    first.begin(ABOUT, ())
    first.step(step(1, loss=0.5))
    first.step(step(2, loss=0.4))  # and no end: it was killed
    second = TensorBoardLog(tmp_path)
    second.begin(ABOUT, [step(1, loss=0.5), step(2, loss=0.4), step(3, loss=0.3)])
    second.step(step(4, loss=0.2))
    second.end(Ending(status="finished", values={}, texts={}))
    assert scalars(tmp_path)["loss"] == [(1, 0.5), (2, 0.4), (3, 0.3), (4, 0.2)]
    assert len(list((tmp_path / FOLDER).iterdir())) == 1


def test_only_event_files_are_cleared(tmp_path: Path) -> None:
    clear(tmp_path)
    log = TensorBoardLog(tmp_path)
    log.begin(ABOUT, ())
    log.end(Ending(status="failed", values={}, texts={}))
    (tmp_path / FOLDER / "mine.txt").write_text("kept")
    clear(tmp_path)
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["mine.txt"]
