"""``tacit epsilon``: what noise, a sampling rate and a number of rounds cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.rounding import epsilon_text

if TYPE_CHECKING:
    from tacit.accounting.accountant import PrivacyCost

Delta = Annotated[float, typer.Option(help="Probability the guarantee may fail with, between 0 and 1.")]
Rate = Annotated[float, typer.Option(help="Share of the clients (or examples) in a round, in (0, 1].")]
Rounds = Annotated[int, typer.Option(min=1, max=limits.STEPS, help="How many rounds.")]
Sampling = Annotated[
    str,
    typer.Option(
        help="How a round is drawn: poisson (each by its own coin), fixed (a set of fixed size) or shuffle "
        "(batches of a shuffled pass). Amplification is claimed only where it is proved."
    ),
]
Neighbours = Annotated[
    str | None,
    typer.Option(
        help="add-remove (one more or less), replace-one (one exchanged, twice the sensitivity) or zero-out (one "
        "contributes nothing, and still takes part).",
        show_default="add-remove; replace-one for fixed; zero-out for shuffle",
    ),
]
Accountant = Annotated[
    str | None,
    typer.Option(
        help="exact-gaussian, pld, renyi, pld-google, rdp, basic or advanced.",
        show_default="the tightest that is proved",
    ),
]


def epsilon(
    *,
    noise: Annotated[float, typer.Option(help="Noise multiplier z: the noise on the sum has deviation z * clip.")],
    rate: Rate = 1.0,
    rounds: Rounds = 1,
    delta: Delta = 1e-5,
    sampling: Sampling = "poisson",
    neighbours: Neighbours = None,
    accountant: Accountant = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a run costs: the composed epsilon of noise, sampling rate and rounds.

    Examples:
      tacit epsilon --noise 1.1 --rate 0.01 --rounds 1000
      tacit epsilon --noise 10 --rounds 100 --delta 1e-6 --neighbours replace-one
    """
    from tacit.accounting import accountant as accounting
    from tacit.accounting.events import to_json
    from tacit.accounting.uniform_run import uniform_run

    ledger = uniform_run(
        noise_multiplier=noise,
        rounds=rounds,
        rate=rate,
        sampling=sampling,  # type: ignore[arg-type]  # checked there, with a sentence for people
        neighbours=neighbours,  # type: ignore[arg-type]  # checked there, with a sentence for people
    )
    cost = accounting.epsilon(ledger, delta, accountant=accountant)  # type: ignore[arg-type]  # checked there, with a sentence for people
    if as_json:
        emit_json({**cost.to_dict(), "noise": to_json(noise), "rate": rate, "rounds": rounds})
        return
    console().print(sentence(cost), markup=False)


def sentence(cost: PrivacyCost) -> str:
    """Return an epsilon with everything that it needs to mean something, for people."""
    value = epsilon_text(cost.epsilon, digits=6) if cost.epsilon < float("inf") else "infinite: no privacy"
    return (
        f"epsilon {value} at delta {cost.delta:g}\n"
        f"  neighbours  {cost.neighbours}\n  sampling    {cost.sampling}\n  accountant  {cost.accountant}"
    )
