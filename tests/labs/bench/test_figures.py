from __future__ import annotations

import re
from pathlib import Path

import tacit.report.page
from tacit.report.page import Page, Section, Series, line
from tacit_labs.bench.documented import figures


def test_a_chart_alone_has_all_that_the_pages_script_looks_at() -> None:
    chart = line(title="Test accuracy", series=[Series(name="a", x=[1, 2], y=[0.1, 0.2])], x_title="x", y_title="y")
    page = Page(title="t", subtitle="s", sections=(Section(title="One", parts=(chart,)),), foot="f").html()
    (found,) = figures.figures(page, "report-000")
    assert found.name == "report-000-test-accuracy"
    alone = figures.alone(page, found, width=700)
    script = (Path(tacit.report.page.__file__).parent / "script.js").read_text()
    looked_at = re.findall(r'^  (?:const|let) .*getElementById\("(\w+)"\)', script, re.MULTILINE)
    assert len(looked_at) == 5
    for name in looked_at:
        assert f'id="{name}"' in alone, name
