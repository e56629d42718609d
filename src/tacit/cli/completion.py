"""What the shell completes: modes, data sets, models, splits, dotted keys with their values, and folders of runs.

A completion is wanted within a blink. Names are therefore read off the source of the rooms that declare them, which
takes milliseconds, where an import of torch or NumPy takes longer than a second; the configuration, a fifth of one, is
loaded for keys alone. Whoever completes nothing gets the files that the shell knows itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from tacit.cli.options import Flag

Items = list[tuple[str, str]]  # what would be written, and what it is in a few words

_ROOT = Path(__file__).parents[1]  # of the package
_LEFT_BEHIND = ("journal.jsonl", "study.json")  # in the folder of a run, and of a study
_YAML = (".yaml", ".yml")


def modes() -> dict[str, str]:
    """Return the modes of this version by name, with what each is."""
    return dict(
        item
        for path in sorted((_ROOT / "modes").glob("*.py"))
        if " = Mode(" in (text := path.read_text())
        for item in _declared(text, "Mode", "summary")
    )


def data_sets() -> dict[str, str]:
    """Return the data sets by name, with their titles."""
    return dict(_declared((_ROOT / "tasks" / "catalogue.py").read_text(), "Entry", "title"))


def models() -> dict[str, str]:
    """Return the models by name."""
    return dict.fromkeys(_keys((_ROOT / "tasks" / "models.py").read_text(), "MODELS"), "")


def splits() -> dict[str, str]:
    """Return the splits, those that have a number with an example of one."""
    return dict.fromkeys(_keys((_ROOT / "tasks" / "partition.py").read_text(), "_PLAIN", "_NUMBERED"), "")


NAMES: dict[str, Callable[[], dict[str, str]]] = {
    "mode": modes,
    "data.name": data_sets,
    "model.name": models,
    "data.split": splits,
}


def of_flag(flag: Flag) -> Callable[[str], Items] | None:
    """Return what completes the values of a flag; None where any number or file will do."""
    if flag.kind not in (str, list[str]):
        return None

    def values(incomplete: str) -> Items:
        return [(value, said) for value, said in _values(flag.key).items() if value.startswith(incomplete)]

    return values


def of_modes(incomplete: str) -> Items:
    """Complete modes that are separated by commas."""
    before, comma, last = incomplete.rpartition(",")
    left = {mode: said for mode, said in modes().items() if mode not in before.split(",")}
    return [(f"{before}{comma}{mode}", said) for mode, said in left.items() if mode.startswith(last)]


def of_data(incomplete: str) -> Items:
    """Complete the name of a data set."""
    return [(name, said) for name, said in data_sets().items() if name.startswith(incomplete)]


def of_words(ctx: typer.Context, incomplete: str) -> Items:
    """Complete a job file, a dotted key, and the values of a key, whether they are one word or two.

    bash hands over ``key=val`` as three words, and takes only what comes after the sign.
    """
    from tacit.config.run_config import known_keys

    before = [word for word in ctx.params.get("words") or () if word != "="]
    if before and before[-1] in known_keys():
        return _after(before[-1], incomplete)
    key, equals, value = incomplete.partition("=")
    if equals:
        return [(f"{key}={found}", said) for found, said in _after(key, value)]
    return [*_files(incomplete), *_dotted(incomplete)]


def of_compared(ctx: typer.Context, incomplete: str) -> Items:
    """Complete what is compared: the folders of runs, or settings, of one mode alone too."""
    mode, colon, key = incomplete.partition(":")
    if colon and mode in modes():
        return [(f"{mode}:{found}", said) for found, said in of_words(ctx, key)]
    return [*of_runs(incomplete), *of_words(ctx, incomplete)]


def of_runs(incomplete: str) -> Items:
    """Complete the folder of a run or of a study; below ``runs/`` too where nothing is written yet."""
    written = Path(incomplete)
    above = written if incomplete.endswith("/") else written.parent
    places = [above, Path("runs")] if not incomplete else [above]
    found = []
    for place in places:
        try:
            inner = sorted(path for path in place.iterdir() if any((path / name).exists() for name in _LEFT_BEHIND))
        except OSError:
            continue
        found += [(str(path), "") for path in inner if str(path).startswith(incomplete)]
    return found


def _values(key: str) -> dict[str, str]:
    """Return what a key may be, where that can be listed."""
    if key in NAMES:
        return NAMES[key]()
    from tacit.config.run_config import choices, known_keys

    return dict.fromkeys(choices(key), "") if key in known_keys() else {}


def _after(key: str, incomplete: str) -> Items:
    return [(value, said) for value, said in _values(key).items() if value.startswith(incomplete)]


def _dotted(incomplete: str) -> Items:
    """Return the keys that go on like this: sections first, and of a single key the values.

    A shell writes a space after what is unique. A key on its own is therefore completed to several texts that begin
    with ``key=``, so that the value can be written at once.
    """
    from tacit.config.run_config import fields

    known = {key: told for key, told in fields().items() if key.startswith(incomplete)}
    sections = sorted({key.partition(".")[0] + "." for key in known if "." in key and "." not in incomplete})
    if len(sections) > 1 or (sections and any("." not in key for key in known)):
        return [(section, "") for section in sections] + [
            (f"{key}=", _said(told.description)) for key, told in known.items() if "." not in key
        ]
    if len(known) == 1:
        ((key, told),) = known.items()
        ends = _values(key) or {"": _said(told.description), "VALUE": ""}
        return [(f"{key}={end}", said) for end, said in ends.items()]
    return [(f"{key}=", _said(told.description)) for key, told in known.items()]


def _files(incomplete: str) -> Items:
    """Return job files; further down the shell's own completion does it."""
    if "/" in incomplete:
        return []
    found = sorted(path.name for path in Path().iterdir() if path.suffix in _YAML and path.name[0] != ".")
    return [(name, "a job file") for name in found if name.startswith(incomplete)]


def _said(text: str | None) -> str:
    """Return the first part of a description, without signs that a shell would read."""
    first = (text or "").replace("\n", " ").partition(";")[0].partition(". ")[0].rstrip(".")
    return "".join(sign for sign in first if sign not in "`'\"()[]{}$\\")


def _declared(text: str, kind: str, said: str) -> Iterator[tuple[str, str]]:
    """Yield the names that calls of ``kind`` declare in a source, each with what it says of itself."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == kind:
            told = {word.arg: word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)}
            if isinstance(name := told.get("name"), str):
                yield name, _said(str(told.get(said, "")))


def _keys(text: str, *variables: str) -> Iterator[str]:
    """Yield the keys of dictionaries in a source; an example that an entry ends with comes in its key's place."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in variables:
            assert isinstance(node.value, ast.Dict)
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                last = value.elts[-1] if isinstance(value, ast.Tuple) else key
                assert isinstance(last, ast.Constant)
                yield str(last.value)
