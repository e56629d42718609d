"""``tacit attack``: attacks to look at, on what each adversary really gets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import completion
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.audit.membership import Membership
    from tacit.audit.reconstruction import Attempt
    from tacit.report.page import Page

INVERSION, MEMBERSHIP = "gradient-inversion.html", "membership.html"


def attack(
    folder: Annotated[Path, typer.Argument(help="The run's folder.", autocompletion=completion.of_runs, metavar="RUN")],
    *,
    gradient_inversion: Annotated[
        bool, typer.Option("--gradient-inversion", help="Rebuild a client's images from what each adversary gets.")
    ] = False,
    membership: Annotated[
        bool, typer.Option("--membership", help="Tell examples that were trained on from others (LiRA).")
    ] = False,
    images: Annotated[int, typer.Option(help="Images of the client's one step, 1 to 16.")] = 4,
    steps: Annotated[int, typer.Option(min=1, help="How long each adversary looks for images.")] = 600,
    shadows: Annotated[int, typer.Option(help="Runs like this one that the membership attack trains.")] = 8,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The page; in the run's folder by default.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Which images, and everything else that is drawn.")] = 1,
    as_json: JsonFlag = False,
) -> None:
    """Attack a run and write a page to look at: originals beside reconstructions, or a ROC with the claim drawn in.

    Examples:
      tacit attack runs/a --gradient-inversion
      tacit attack runs/a --gradient-inversion --images 1
      tacit attack runs/a --membership --shadows 16
    """
    if gradient_inversion == membership:
        raise ConfigError("Expected --gradient-inversion or --membership: one of them.")
    if gradient_inversion:
        page, told = _inverted(folder, images=images, steps=steps, seed=seed, quiet=as_json)
        path = out or folder / INVERSION
    else:
        page, told = _membership(folder, shadows=shadows, seed=seed, quiet=as_json)
        path = out or folder / MEMBERSHIP
    from tacit.storage import write_atomically

    write_atomically(path, page.html().encode())
    if as_json:
        emit_json(told)
    else:
        console().print(f"{path}", markup=False, highlight=False)


def _inverted(folder: Path, *, images: int, steps: int, seed: int, quiet: bool) -> tuple[Page, dict[str, object]]:
    from dataclasses import asdict

    from tacit.audit.reconstruction import scene
    from tacit.report.attack import Made, inversion_page

    out = console()
    shown = scene(folder, batch=images, seed=seed)
    made: list[Attempt] = []
    for attempt in shown.attempts(steps=steps):
        made.append(attempt)
        if not quiet:
            out.print(_line(attempt), markup=False, highlight=False)
    page = inversion_page(
        folder.resolve().name,
        shown.originals.tolist(),
        [
            Made(mode=one.mode, who=one.who, sees=one.sees, images=one.found.tolist(), **asdict(one.score))
            for one in made
        ],
        shown.notes,
    )
    told = [{"mode": one.mode, "who": one.who, "sees": one.sees} | asdict(one.score) for one in made]
    return page, {"images": images, "views": told, "notes": list(shown.notes)}


def _line(attempt: Attempt) -> str:
    score = attempt.score
    return (
        f"{attempt.mode:<9} {attempt.who}, with {attempt.sees}: {score.matched:.0%} found again "
        f"(PSNR {score.psnr:.1f} dB, SSIM {score.ssim:.2f})"
    )


def _membership(folder: Path, *, shadows: int, seed: int, quiet: bool) -> tuple[Page, dict[str, object]]:
    from dataclasses import asdict

    from tacit.audit.membership import RATES, membership
    from tacit.report.attack import membership_page
    from tacit.report.words import guarantee
    from tacit.rounding import epsilon_text
    from tacit.runs.progress import result_of

    out = console()
    found = membership(
        folder,
        shadows=shadows,
        seed=seed,
        told=lambda text: None if quiet else out.print(text, markup=False, highlight=False),
    )
    result = result_of(folder)
    claim = "The run claims no differential privacy: nothing bounds what an attack may find."
    if result is not None and result.privacy is not None:
        claim = (
            f"The run claims epsilon {epsilon_text(result.privacy.epsilon)}, with {guarantee(result.privacy)}. What "
            "that allows of one example is drawn in"
            + ("." if result.privacy.unit == "example" else ": a client with and without it are two clients apart.")
        )
    allowed = found.allowed or (None,) * len(RATES)
    rows = {rate: (own, most) for rate, own, most in zip(RATES, found.at, allowed, strict=True)}
    if not quiet:
        out.print(_found(found, rows), markup=False, highlight=False)
    page = membership_page(
        folder.resolve().name,
        counts=(found.members, found.others, found.shadows),
        alarms=found.alarms,
        found=found.found,
        curve=found.curve,
        area=found.area,
        rows=rows,
        claim=claim,
    )
    return page, asdict(found)


def _found(found: Membership, rows: dict[float, tuple[float, float | None]]) -> str:
    lines = [
        f"at {rate:.1%} false alarms {own:.2%} of the members are found"
        + ("" if most is None else f"; the claim allows at most {most:.2%}")
        for rate, (own, most) in rows.items()
    ]
    return "\n".join([*lines, f"area under the curve {found.area:.3f}; chance is 0.5"])
