"""Attacks on a page: images and what each adversary made of them, and how well members are told from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.report.page import Note, Page, Part, Pictures, Section, Series, Table, Text, line

Image = Sequence[Sequence[float]]
_CLOSE = 0.5  # the share of images found again from which a view is called unsafe


@dataclass(frozen=True, kw_only=True)
class Made:
    """What somebody made of a client's images.

    Attributes:
        mode: the protection.
        who: who tried.
        sees: what it had to start from.
        images: what came of it.
        psnr: the peak signal-to-noise ratio in decibels, in the mean.
        ssim: structural similarity, in the mean.
        matched: the share of the images that can be found again by these.
    """

    mode: str
    who: str
    sees: str
    images: Sequence[Image]
    psnr: float
    ssim: float
    matched: float


def inversion_page(name: str, originals: Sequence[Image], made: Sequence[Made], notes: Sequence[str]) -> Page:
    """Return originals and reconstructions side by side, mode by mode."""
    by_mode: dict[str, list[Made]] = {}
    for one in made:
        by_mode.setdefault(one.mode, []).append(one)
    table = Table(
        columns=("mode", "who", "has", "PSNR", "SSIM", "found again"),
        rows=[
            (own.mode, own.who, own.sees, f"{own.psnr:.1f} dB", f"{own.ssim:.2f}", f"{own.matched:.0%}") for own in made
        ],
        align="lllrrr",
        tones={(place, 5): "bad" for place, own in enumerate(made) if own.matched >= _CLOSE},
    )
    about = Text(
        text=f"A client takes one step on {_count(len(originals), 'image')} of the run's data set and takes part in a "
        "round of eight clients. Each adversary looks for images that explain what it got (Geiping et al. 2020; a "
        "linear first layer and a single image: by division, Phong et al. 2018). It knows the model and the labels. "
        "An image is found again if its reconstruction resembles it more than any of 500 others."
    )
    sums = Text(
        text="A sum hides who sent what, and not what is in it: few clients with few images are seen through it. What "
        "hides those is noise."
    )
    sections = [Section(title="In short", parts=[about, *(Note(text=note) for note in notes), table, sums])]
    for mode, own in by_mode.items():
        parts: list[Part] = []
        for one in own:
            rows = {"original": originals, "reconstruction": one.images}
            said = f"**{_first_large(one.who)}** has {one.sees}: {one.matched:.0%} found again, SSIM {one.ssim:.2f}."
            parts += [Text(text=said), Pictures(rows=rows)]
        sections.append(Section(title=f"Mode {mode}", parts=parts))
    return Page(
        title=f"Gradient inversion on {name}",
        subtitle="What a client's update gives away, before and after each protection",
        sections=sections,
        foot="Made by `tacit attack --gradient-inversion`. An attack that fails is no proof: others may do better.",
    )


def membership_page(
    name: str,
    *,
    counts: tuple[int, int, int],
    alarms: Sequence[float],
    found: Sequence[float],
    curve: Sequence[float] | None,
    area: float,
    rows: Mapping[float, tuple[float, float | None]],
    claim: str,
) -> Page:
    """Return the ROC of a membership attack with what the claim allows drawn into it.

    Args:
        name: the run's.
        counts: of members, of others and of shadow runs.
        alarms: rates of false alarms, and
        found: the share of members found at each.
        curve: the most that the claim allows at each, where there is a claim.
        area: under the curve.
        rows: of some rates, what was found and what is allowed.
        claim: the claim in words.
    """
    members, others, shadows = counts
    series = [
        Series(name="attack", x=list(alarms), y=[share or None for share in found]),
        Series(name="chance", x=list(alarms), y=list(alarms)),
    ]
    if curve is not None:
        series.insert(1, Series(name="the most that the claim allows", x=list(alarms), y=list(curve)))
    chart = line(
        title="Members found, by false alarms",
        series=series,
        x_title="false-positive rate",
        y_title="true-positive rate",
        log_x=True,
        log_y=True,
        caption=f"{members:,} examples that were trained on against {others:,} that were not; area under the curve "
        f"{area:.3f}, where chance is 0.5. A rate below 1 in {others:,} is measured without any false alarm.",
    )
    table = Table(
        columns=("false-positive rate", "found", "the claim allows at most"),
        rows=[
            (f"{rate:.1%}", f"{own:.2%}", "–" if most is None else f"{most:.2%}") for rate, (own, most) in rows.items()
        ],
        align="rrr",
    )
    about = Text(
        text=f"Offline LiRA (Carlini et al. 2022) with {_count(shadows, 'shadow run')} of the same settings on random "
        "halves of the data: was this example trained on?"
    )
    return Page(
        title=f"Membership inference on {name}",
        subtitle="How well examples that were trained on can be told from others",
        sections=[Section(title="In short", parts=[about, Text(text=claim), table, chart])],
        foot="Made by `tacit attack --membership`. An attack that fails is no proof: others may do better.",
    )


def _count(number: int, word: str) -> str:
    return f"one {word}" if number == 1 else f"{number} {word}s"


def _first_large(text: str) -> str:
    return text[:1].upper() + text[1:]
