from __future__ import annotations

import json
import math

import numpy as np
import pytest

from tacit.report.page.markup import cell, json_block, marked, plain


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("a & b", "a &amp; b"),
        ("**b** and `c`", "<strong>b</strong> and <code>c</code>"),
        ("`**not bold**`", "<code>**not bold**</code>"),
        ("**<i>**", "<strong>&lt;i&gt;</strong>"),
        ("`<script>`", "<code>&lt;script&gt;</code>"),
        ("2 ** 3 and `", "2 ** 3 and `"),
    ],
)
def test_marks_are_set_and_all_else_is_escaped(text: str, html: str) -> None:
    assert marked(text) == html


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1_234_567, "1,234,567"),
        (0.000123456, "0.0001235"),
        (12345.6, "12,346"),
        (1.5e12, "1.5e+12"),
        (math.nan, "–"),
        (math.inf, "infinite"),
        (-math.inf, "minus infinite"),
        (False, "no"),
        ("1234", "1234"),
    ],
)
def test_cells_are_rounded_for_people(value: object, text: str) -> None:
    assert cell(value) == text


def test_no_text_ends_the_script_element_and_json_survives() -> None:
    value = {"name": "</script><!--<script>&\u2028"}
    block = json_block(value)
    assert "<" not in block
    assert ">" not in block
    assert "\u2028" not in block
    assert json.loads(block) == value


def test_arrays_become_lists_and_gaps_become_null() -> None:
    block = json_block({"y": np.array([[1.0, math.nan], [math.inf, 2.0]]), "n": np.int64(3), "t": (1, -math.inf)})
    assert json.loads(block) == {"y": [[1.0, None], [None, 2.0]], "n": 3, "t": [1, None]}


def test_a_label_is_no_markup() -> None:
    assert plain("<a href='https://x'>&amp;</a>") == "&lt;a href='https://x'&gt;&amp;amp;&lt;/a&gt;"
