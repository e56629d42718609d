from __future__ import annotations

import itertools
import re

import pytest

from tacit.report.page import palette
from tacit.report.page.html import style as style_sheet


def _lightness(colour: str) -> float:
    """Return CIE L* of a colour such as ``#085aa6``: what is left of it in grey."""
    channels = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return float(116 * light ** (1 / 3) - 16 if light > 0.008856 else 903.3 * light)


def _themes() -> dict[str, dict[str, str]]:
    """Return the colours of each theme as the style sheet has them."""
    style = style_sheet()
    light, dark, by_system = (
        dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", block))
        for block in (
            style.split(':root[data-theme="dark"]')[0],
            style.split(':root[data-theme="dark"]')[1].split("@media")[0],
            style.split("@media (prefers-color-scheme: dark)")[1].split("[data-theme=")[0],
        )
    )
    return {"light": light, "dark": dark, "dark by system": by_system}


def test_the_two_ways_to_dark_are_the_same() -> None:
    themes = _themes()
    assert themes["dark"] == themes["dark by system"]
    assert themes["dark"].keys() == themes["light"].keys()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_series_stay_apart_in_grey_and_stand_out_from_the_panel(theme: str) -> None:
    colours = _themes()[theme]
    lightness = [_lightness(colours[f"--series-{number}"]) for number in range(1, palette.COUNT + 1)]
    assert min(abs(one - other) for one, other in itertools.combinations(lightness, 2)) > 5
    panel = _lightness(colours["--panel"])
    assert min(abs(one - panel) for one in lightness) > 30
    assert abs(_lightness(colours["--ink"]) - panel) > 70


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_scale_goes_one_way(theme: str) -> None:
    steps = [_lightness(_themes()[theme][f"--scale-{number}"]) for number in range(1, 6)]
    assert steps in (sorted(steps), sorted(steps, reverse=True))


def test_every_style_has_a_dash_a_symbol_and_a_hatching_of_its_own() -> None:
    for marks in (palette.DASHES, palette.SYMBOLS, palette.PATTERNS):
        assert len(set(marks)) == len(marks) == palette.COUNT
