"""JSON and YAML of others: whatever it is, it is read or refused with one error, and soon."""

from __future__ import annotations

import ast
import time
from pathlib import Path

import pytest

import tacit
from tacit import foreign
from tacit.errors import WireError

_ALIASES = "\n".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 9))
_MERGES = "\n".join(f"x{n}: &x{n} {{<<: [{', '.join([f'*x{n - 1}'] * 9)}]}}" for n in range(1, 9))


def test_what_tacit_writes_is_read() -> None:
    assert foreign.json_value(b'{"a": [1, -2.5, null, true, "\\u00e9\\ud83d\\ude00"]}') == {
        "a": [1, -2.5, None, True, "é\U0001f600"]
    }
    assert foreign.json_value("[" * 32 + "]" * 32) is not None
    assert foreign.json_value(memoryview(b'"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["')) == "[" * 42
    assert foreign.json_value("[1e999, NaN]", finite=False)[0] == float("inf")
    assert foreign.yaml_value("a: &a {x: 1}\nb: {<<: *a, y: [2, .inf]}")["b"] == {"x": 1, "y": [2, float("inf")]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 33 + "]" * 33, "deeper than 32"),
        ("[" * 100_000, "deeper than 32"),
        ('{"a":' * 50_000, "deeper than 32"),
        ("NaN", "no finite number"),
        ("[-Infinity]", "no finite number"),
        ("1e999", "no finite number"),
        ("9" * 5000, "5000 digits"),
        ('{"round": 1, "round": 2}', "given twice"),
        (r'"\ud800"', "surrogates not allowed"),
        ('"' + '\\"' * 500_000 + "\\", "Unterminated"),
        ('"' * 1_000_000, "Extra data"),
        ("x" * (1 << 21), "at most 1048576 bytes"),
        ("", "Expecting value"),
        (b"\xff", "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
    ],
)
def test_json_that_tacit_does_not_write_is_refused_soon(text: str | bytes, why: str) -> None:
    start = time.process_time()
    with pytest.raises(WireError, match=why):
        foreign.json_value(text)
    assert time.process_time() - start < 2


def test_an_object_is_asked_for() -> None:
    with pytest.raises(WireError, match=r"Expected a JSON object, got b'\[1\]'"):
        foreign.json_object(b"[1]")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 120_000, "deeper than 32"),
        ("- " * 60_000, "deeper than 32"),
        ("a: &a [*a]", "deeper than 32"),
        ("a: &a {<<: *a}", "refers to itself"),
        (f"x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1]\n{_ALIASES}", "more than 100000 values"),
        (f"x0: &x0 {{x: 1, y: 2}}\n{_MERGES}", "more than 100000 values"),
        ("0x" + "f" * 10_000, "more than 40 digits"),
        (r'"\ud800"', "surrogates not allowed"),
        ("2021-99-99", "month must be"),
        ('!!int ""', "Expected YAML"),
        ("!!timestamp x", "Expected YAML"),
        ("!!bool x", "Expected YAML"),
        ("0x_", "Expected YAML"),
        ("!!python/object/apply:os.getcwd []", "could not determine a constructor"),
        ("a: [", "Expected YAML"),
        ("a: 5\nb: {c: 1, d: 2, c: 3}", "given twice"),
        ("a" * (1 << 18), "at most 131072"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_yaml_that_would_do_harm_is_refused_soon(text: str | bytes, why: str) -> None:
    start = time.process_time()
    with pytest.raises(WireError, match=why):
        foreign.yaml_value(text)
    assert time.process_time() - start < 2


def test_nobody_parses_by_other_ways() -> None:
    """What a package of ours wrote a moment before, and a child process on its own pipe, are no strangers."""
    own = {"foreign.py", "studies/plan.py", "studies/sweep.py", "runs/result.py"}
    own |= {"storage.py"}  # at most 4096 bytes, and what is wrong with them is no matter
    root = Path(tacit.__file__).parent
    for path in sorted(root.rglob("*.py")):
        if path.relative_to(root).as_posix() not in own:
            calls = [
                ast.unparse(node.func) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
            ]
            assert not {"json.loads", "json.load", "yaml.safe_load", "yaml.load"} & set(calls), path
