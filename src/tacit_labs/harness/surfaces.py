"""Surfaces over C and sigma; epsilon, where it is the height, by factors of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.report.page import Chart, surface

_HEIGHT = 400


@dataclass(frozen=True, kw_only=True)
class Plane:
    """What surfaces stand over."""

    clips: Sequence[float]
    sigmas: Sequence[float]


def shares(
    plane: Plane, *, title: str, heights: Sequence[Sequence[float]], ends: tuple[float, float] | None = None
) -> Chart:
    """Return a surface of accuracies; ``heights`` has a row for each sigma."""
    return surface(
        title=title,
        x=plane.clips,
        y=plane.sigmas,
        z=heights,
        x_title="C",
        y_title="sigma",
        z_title="",  # the title says it; beside the axis a phone would cut it off
        z_format=".1%",
        z_ends=ends,
        height=_HEIGHT,
    )


def epsilons(
    plane: Plane, *, title: str, heights: Sequence[Sequence[float]], ends: tuple[float, float], caption: str
) -> Chart:
    """Return a surface of epsilons whose scale holds both ``ends``, so that several have the same one."""
    low, high = math.floor(math.log10(ends[0])), math.ceil(math.log10(ends[1]))
    return surface(
        title=title,
        x=plane.clips,
        y=plane.sigmas,
        z=heights,
        x_title="C",
        y_title="sigma",
        z_ends=(10.0**low, 10.0**high),
        log_z=True,
        caption=caption,
        height=_HEIGHT,
    )
