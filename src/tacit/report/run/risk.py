"""What an epsilon means, in plain language: how often somebody can be right, and what nobody promises."""

from __future__ import annotations

import math

from tacit.report.page import Cell, Note, Part, Table
from tacit.report.words import short
from tacit.rounding import epsilon_text
from tacit.runs.remarks import LARGEST_MEANINGFUL, risk_of
from tacit.studies.results import Claimed

_ALARMS = (0.001, 0.01, 0.1)
_QUESTIONS = {  # what somebody tries to find out, {} being a client or an example
    "add-remove": "whether one {} was among the data at all",
    "replace-one": "which of two data sets one {} held",
    "zero-out": "whether one {} contributed its data or nothing",
}


def percentage(share: float) -> str:
    """Return a share that is a bound: rounded up, and never to certainty.

    >>> percentage(0.79631), percentage(0.999999), percentage(1.0)
    ('79.7%', 'nearly 100%', '100%')
    """
    if share >= 1.0:
        return "100%"
    return f"{math.ceil(share * 1000 - 1e-9) / 10:.3g}%" if share <= 0.999 else "nearly 100%"


def sentence(privacy: Claimed) -> str:
    """Return the risk in one sentence."""
    if privacy.epsilon == math.inf:
        return "There is no bound on what anybody can find out: epsilon is infinite."
    found = risk_of(privacy)
    question = _QUESTIONS.get(privacy.neighbours, "whether one {}'s data were used").format(privacy.unit)
    return (
        f"An attacker who knows everything but {question}, takes both for equally likely, and has everything that was "
        f"released, is right at most **{percentage(found.right_guesses)}** of the time. A coin is right 50% of the "
        "time."
    )


def limits(privacy: Claimed) -> str:
    """Return what an epsilon does not promise."""
    group = "a group of them" if privacy.unit == "client" else "a whole client"
    return (
        f"It holds against {privacy.against}, and against nobody else. It is about one {privacy.unit}, not about "
        f"{group}. What is true of people in general, such as that smoking harms, the model may and should tell. It "
        "says nothing of how well computers are guarded. With a probability of up to "
        f"{short(privacy.delta)} (delta) it may fail."
    )


def parts(privacy: Claimed) -> list[Part]:
    """Return the box: what this epsilon means, what it does not mean, and the risk as a table."""
    if privacy.epsilon == math.inf:
        return [Note(text=f"**What this epsilon means.** {sentence(privacy)}", tone="bad")]
    found = risk_of(privacy)
    weak = privacy.epsilon > LARGEST_MEANINGFUL or found.right_guesses > 0.999
    told = "All that was released says so, and not epsilon and delta alone."
    if privacy.right_guesses is None:
        told = "Epsilon and delta alone say so; what was released may well tell less."
    seldom = f"One that accuses at a false-positive rate of 1% finds at most {percentage(found.power(0.01))}."
    means = f"**What epsilon {epsilon_text(privacy.epsilon)} means.** {sentence(privacy)} {seldom} {told}"
    not_means = f"**What it does not mean.** {limits(privacy)}"
    rows: list[tuple[Cell, ...]] = [
        (f"1 in {round(1 / alpha):,}", percentage(alpha), percentage(found.power(alpha))) for alpha in _ALARMS
    ]
    table = Table(
        columns=("wrongly accuses", "finds by luck", "finds at most"),
        rows=rows,
        align="rrr",
        caption=f"The best attack that seldom accuses one {privacy.unit} wrongly: the share that it finds of those it "
        "looks for.",
    )
    return [Note(text=means, tone="bad" if weak else "plain"), Note(text=not_means), table]
