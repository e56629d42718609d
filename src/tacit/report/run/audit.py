"""What canaries found in a run, beside what it claims: in a sentence, and on one axis."""

from __future__ import annotations

import math

from tacit.report.page import Chart, Note, Part, bars
from tacit.report.words import short
from tacit.rounding import bound_text, epsilon_text
from tacit.runs.result import Audited


def sentence(found: Audited) -> str:
    """Return what canaries found, for people."""
    verdict = (
        "The claim is **false**: something in this run tells more than epsilon allows."
        if found.refuted
        else "That is nothing against the claim, and no proof of it."
    )
    final = "" if found.final is None else f", and at least {bound_text(found.final)} by the final model alone"
    return (
        f"Of {found.canaries:,} canaries {found.inside:,} were in the training. By all that was released epsilon is at "
        f"least **{bound_text(found.bound)}** with {100 * found.confidence:g}% confidence{final}; "
        f"{epsilon_text(found.epsilon)} is claimed. {verdict}"
    )


def parts(found: Audited) -> list[Part]:
    """Return the sentence, and claim and bounds on one axis."""
    return [Note(text=f"**Audited.** {sentence(found)}", tone="bad" if found.refuted else "plain"), _chart(found)]


def _chart(found: Audited) -> Chart:
    shown = {
        "claimed, at most": found.epsilon,
        "all releases, at least": found.bound,
        "final model alone, at least": found.final,
        "whatever the mechanism, at least": found.any_shape,
    }
    known = {name: value for name, value in shown.items() if value is not None and math.isfinite(value)}
    return bars(
        title="Claimed and shown",
        categories=list(known),
        series={"epsilon": list(known.values())},
        y_title=f"epsilon at delta {short(found.delta)}",
        horizontal=True,
        caption=f"What the run claims of one {found.unit}, and what canaries show with {100 * found.confidence:g}% "
        "confidence. The second and third rest on noise of the claimed shape, the last on the coins alone.",
        height=260,
    )
