from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.errors import ConfigError
from tacit_labs.harness import files, overview
from tacit_labs.harness.experiment import Settings
from tacit_labs.harness.record import perform
from tests.labs.common import toy


def _write(folder: Path, name: str, *, headline: bool = True) -> None:
    outcome = perform(toy(name), Settings(out=folder / "work"))
    found = [replace(one, headline=headline) for one in outcome.reproduction.findings]
    files.write(replace(outcome, reproduction=replace(outcome.reproduction, findings=found)), folder)


def test_headlines_of_all_that_lie_in_a_folder_stand_on_one_page(tmp_path: Path) -> None:
    _write(tmp_path, "lab-004")
    _write(tmp_path, "signds-001", headline=False)
    found = overview.sources(tmp_path)
    assert [(source.name, source.document) for source in found] == [("lab-004", "009_toy.txt")]
    assert found[0].rows == (("speed", "240 s", "3 s", "the original used <one> core"),)
    path = overview.write(tmp_path, advice="")
    assert path == tmp_path / "overview.html"
    text = path.read_text()
    assert "240 s" in text
    assert "Not in this folder: " in text
    assert "signds-001" in text.partition("Not in this folder: ")[2]


def test_without_headlines_there_is_no_page(tmp_path: Path) -> None:
    _write(tmp_path, "signds-001", headline=False)
    assert overview.write(tmp_path, advice="") is None
    assert not (tmp_path / "overview.html").exists()


def test_files_from_before_there_were_headlines_are_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "signds-001")
    path = tmp_path / "signds-001.json"
    old = json.loads(path.read_text())
    for found in old["findings"]:
        del found["headline"]
    path.write_text(json.dumps(old))
    assert overview.sources(tmp_path) == []


def test_the_same_for_the_documentation(tmp_path: Path) -> None:
    _write(tmp_path, "lab-004")
    text = overview.markdown(overview.sources(tmp_path))
    assert "| speed | 240 s | 3 s |" in text.splitlines()
    assert "`009_toy.txt`" in text


def test_a_page_has_the_tables_between_its_marks_and_keeps_the_rest(tmp_path: Path) -> None:
    _write(tmp_path, "lab-004")
    page = tmp_path / "page.md"
    page.write_text(f"above\n\n{overview.BEGIN}\nold\n{overview.END}\n\nbelow\n")
    overview.rewrite(page, tmp_path)
    text = page.read_text()
    assert "old" not in text
    assert "| speed | 240 s | 3 s |" in text
    assert text.startswith("above\n")
    assert text.endswith("\nbelow\n")
    overview.rewrite(page, tmp_path)
    assert page.read_text() == text
    page.write_text("no marks")
    with pytest.raises(ConfigError, match="once each"):
        overview.rewrite(page, tmp_path)


def test_a_table_comes_from_its_csv_file_rounded(tmp_path: Path) -> None:
    _write(tmp_path, "lab-004")
    (tmp_path / "lab-004-keys.csv").write_text('bits,"a, b",by\n1024,0.37764795,x|y\n2048,,\n')
    marks = f"{overview.BEGIN}\n{overview.END}\n<!-- table: lab-004-keys -->\nold\n<!-- end of table -->\nbelow\n"
    made = overview.filled(marks, tmp_path)
    assert "| bits | a, b | by |\n| --- | --- | --- |\n| 1024 | 0.3776 | x\\|y |\n| 2048 |  |  |\n" in made
    assert "old" not in made
    assert made.endswith("below\n")
    assert overview.filled(made, tmp_path) == made
    with pytest.raises(ConfigError, match=r"no-such\.csv"):
        overview.filled(marks.replace("lab-004-keys", "no-such"), tmp_path)
    with pytest.raises(ConfigError, match="below it"):
        overview.filled(marks.replace("<!-- end of table -->", ""), tmp_path)


def test_the_documentation_has_what_the_committed_files_say() -> None:
    root = Path(__file__).parents[3]
    text = (root / "docs" / "reproductions.md").read_text()
    assert overview.filled(text, root / "benchmarks" / "results" / "reproductions") == text, (
        "python benchmarks/overview.py"
    )
