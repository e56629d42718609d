"""``tacit epsilon``: what noise, a sampling rate and a number of rounds cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import ConfigError
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
Separation = Annotated[
    int | None,
    typer.Option(
        min=1,
        max=limits.ROUNDS,
        help="Each client takes part in every n-th round, by a public schedule: it is charged for those, and "
        "nothing is sampled.",
        show_default=False,
    ),
]
Correlation = Annotated[
    str | None,
    typer.Option(
        help="With --separation: banded, toeplitz or blt, noise that later rounds take back.",
        show_default="banded where --bands is given, else none",
    ),
]
Bands = Annotated[
    int | None, typer.Option(min=1, help="Rounds whose noise is combined.", show_default="the separation")
]
Buffers = Annotated[int | None, typer.Option(min=1, max=12, help="Vectors that a BLT keeps.", show_default="4")]
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
    separation: Separation = None,
    correlation: Correlation = None,
    bands: Bands = None,
    buffers: Buffers = None,
    accountant: Accountant = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a run costs: the composed epsilon of noise, sampling rate and rounds.

    Examples:
      tacit epsilon --noise 1.1 --rate 0.01 --rounds 1000
      tacit epsilon --noise 5 --rounds 100 --separation 10 --bands 10
      tacit epsilon --noise 10 --rounds 100 --delta 1e-6 --neighbours replace-one
    """
    from tacit.accounting import accountant as accounting
    from tacit.accounting.events import to_json
    from tacit.accounting.uniform_run import uniform_run

    schedule = schedule_of(rounds, separation, correlation, bands, buffers, rate=rate, sampling=sampling)
    ledger = uniform_run(
        noise_multiplier=noise if schedule is None else noise / math.sqrt(schedule.releases),
        rounds=rounds if schedule is None else 1,
        rate=rate,
        sampling=sampling,  # type: ignore[arg-type]  # checked there, with a sentence for people
        neighbours=neighbours if schedule is None else schedule.neighbours(neighbours),  # type: ignore[arg-type]  # checked there
    )
    cost = accounting.epsilon(ledger, delta, accountant=accountant)  # type: ignore[arg-type]  # checked there, with a sentence for people
    if as_json:
        told = {"noise": to_json(noise), "rate": rate, "rounds": rounds}
        emit_json({**cost.to_dict(), **told, **({} if schedule is None else schedule.to_dict())})
        return
    console().print(sentence(cost), markup=False)
    if schedule is not None:
        console().print(schedule.sentence(noise), markup=False)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A public schedule, and the noise that is made for it.

    Attributes:
        participations: how often a client takes part at the most.
        releases: how many independent releases that costs.
        error: the root mean square of the noise in the model's prefix sums, for a noise multiplier of 1, in clips.
        kind: how rounds' noise hangs together.
    """

    participations: int
    releases: float
    error: float
    kind: str

    def neighbours(self, asked: str | None) -> str:
        """Return the relation: who takes part is public, so that none holds that would hide it."""
        if asked == "add-remove":
            raise ConfigError(
                "--neighbours add-remove does not hold with --separation: the schedule tells who is there. Use "
                "zero-out or replace-one."
            )
        return asked or "zero-out"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"participations": self.participations, "correlation": self.kind, "model_noise": self.error}

    def sentence(self, noise: float) -> str:
        """Return what to know of it."""
        return (
            f"  each client  {self.participations} times at the most, by a public schedule\n"
            f"  in the model {noise * self.error:.4g} clips of noise per number of a sum of updates, in the root mean "
            f"square over rounds ({'independent draws' if self.kind == 'none' else self.kind})"
        )


def schedule_of(
    rounds: int,
    separation: int | None,
    correlation: str | None,
    bands: int | None,
    buffers: int | None,
    *,
    rate: float,
    sampling: str,
) -> Schedule | None:
    """Return the schedule that flags ask for, or None where they ask for none."""
    if separation is None:
        if correlation or bands or buffers:
            raise ConfigError(
                "--correlation, --bands and --buffers need --separation, such as 10: each client in every tenth round."
            )
        return None
    if rate != 1.0 or sampling != "poisson":
        raise ConfigError("--separation is a public schedule: leave out --rate and --sampling.")
    from tacit.mechanisms.correlated import factorise, strategy

    kind = correlation or ("blt" if buffers else "banded" if bands else "none")
    participations = -(-rounds // separation)
    if kind == "none":
        independent = math.sqrt((rounds + 1) / 2.0)
        return Schedule(participations=participations, releases=participations, error=independent, kind=kind)
    if kind not in get_args(strategy.Kind):
        raise ConfigError(f"Unknown correlation {kind!r}. Choose one of none, {', '.join(get_args(strategy.Kind))}.")
    if (buffers and kind != "blt") or (bands and kind == "blt"):
        raise ConfigError("A BLT has --buffers, the other correlations have --bands. Leave the other out.")
    chosen = strategy.Correlation(
        kind=kind,  # type: ignore[arg-type]  # looked at above
        rounds=rounds,
        separation=separation,
        bands=1 if kind == "blt" else bands or separation,
        buffers=buffers or 4,
    )
    error = strategy.error(factorise.strategy_of(chosen))
    return Schedule(participations=participations, releases=factorise.total_price(chosen), error=error, kind=kind)


def sentence(cost: PrivacyCost) -> str:
    """Return an epsilon with everything that it needs to mean something, for people."""
    value = epsilon_text(cost.epsilon, digits=6) if cost.epsilon < float("inf") else "infinite: no privacy"
    return (
        f"epsilon {value} at delta {cost.delta:g}\n"
        f"  neighbours  {cost.neighbours}\n  sampling    {cost.sampling}\n  accountant  {cost.accountant}"
    )
