"""``tacit signds``: what settings of SignDS mean, and which ones are a guarantee."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from tacit import limits
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.rounding import epsilon_text

app = typer.Typer(help="Plan SignDS: what is named, sent and spent; settings for a budget.", no_args_is_help=True)

_BUDGET = 8.0
Dim = Annotated[int, typer.Option("--dim", min=2, max=limits.PARAMETERS, help="d: the model's parameters.")]
Delta = Annotated[float, typer.Option(help="Probability the guarantee may fail with, between 0 and 1.")]
Rounds = Annotated[int, typer.Option(min=1, max=limits.ROUNDS, help="In how many rounds a client takes part.")]
Shuffled = Annotated[
    int | None,
    typer.Option(
        "--shuffled",
        min=1,
        max=limits.CLIENTS,
        help="Assume a trusted shuffler that mixes so many reports.",
        show_default=False,
    ),
]


@app.command("plan")
def show_plan(
    *,
    dim: Dim,
    k: Annotated[float, typer.Option("--k", help="sign_k in (0, 0.25]: the share of the largest coordinates.")] = 0.01,
    eps: Annotated[float, typer.Option("--eps", help="sign_eps in (0, 100]: cost of a report's set.")] = 100.0,
    ratio: Annotated[
        float, typer.Option("--ratio", help="sign_thr_ratio in [0.5, 1]: least share of hits, in the mean.")
    ] = 0.6,
    out: Annotated[int, typer.Option("--out", help="sign_dim_out in [0, 50]: named coordinates; 0 finds them.")] = 0,
    h_max: Annotated[
        int | None,
        typer.Option("--h-max", min=1, max=limits.EXAMPLES, help="Most named coordinates.", show_default=False),
    ] = None,
    rr_eps: Annotated[
        float, typer.Option("--rr-eps", max=limits.EPSILON, help="Cost of the magnitude's bit; 0 for none.")
    ] = 5.0,
    rounds: Rounds = 1,
    delta: Delta = 1e-5,
    shuffled: Shuffled = None,
    as_json: JsonFlag = False,
) -> None:
    """Show what a report names, how many bytes it takes and what it costs.

    Examples:
      tacit signds plan --dim 66404 --k 0.2 --eps 100 --ratio 0.6
      tacit signds plan --dim 21840 --k 0.2 --eps 2 --rr-eps 0.2 --rounds 20
    """
    from tacit.errors import ConfigError
    from tacit.mechanisms import selection
    from tacit.modes import suggestion
    from tacit.modes.signds import FEW, few
    from tacit.protocols.reports import ReportCode
    from tacit.runs import remarks
    from tacit.wire import BRIEF_BYTES

    if not 0.0 <= rr_eps < float("inf"):
        raise ConfigError(f"rr_eps={rr_eps} is outside its domain: expected a number in [0, ...).")
    found = selection.plan(dimensions=dim, share=k, epsilon=eps, ratio=ratio, chosen=out, most=h_max)
    size = ReportCode(dimensions=dim, chosen=found.chosen).size
    total = suggestion.composed(eps, rr_eps, participations=rounds, delta=delta, shuffled=shuffled)
    remark = remarks.no_guarantee(total.epsilon)
    better = None
    if remark is not None:
        better = suggestion.suggest(
            dimensions=dim, epsilon=_BUDGET, delta=delta, participations=rounds, shuffled=shuffled
        )
    plain: dict[str, Any] = {
        "dimensions": dim,
        "largest": found.largest,
        "output_dimensions": found.chosen,
        "threshold": found.threshold,
        "expected_hits": found.expected_hits,
        "bytes": size,
        "bytes_with_header": size + BRIEF_BYTES,
        "bytes_in_the_clear": 4 * dim,
        "epsilon_per_round": eps + rr_eps,
        "rounds": rounds,
        "epsilon": total.epsilon,
        "delta": delta,
        "accountant": total.accountant,
        "shuffled": shuffled,
        "guarantee": remark is None,
        "suggestion": None if better is None else better.to_dict(),
        "warnings": [few(k, found.largest, dim)] if found.largest <= FEW else [],
    }
    if as_json:
        emit_json(plain)
        return
    lines = [
        f"names       {found.chosen} of {dim:,} coordinates; {found.expected_hits:.2f} of them in the mean are among "
        f"the {found.largest:,} largest ({found.threshold} or more are favoured)",
        f"sends       {size} bytes per report, {size + BRIEF_BYTES} with its header; the update has {4 * dim:,}",
        f"costs       epsilon {eps + rr_eps:g} a round ({eps:g} for the set, {rr_eps:g} for the magnitude's bit)",
        f"composed    epsilon {epsilon_text(total.epsilon, digits=6)} at delta {delta:g} after {rounds} "
        f"{'round' if rounds == 1 else 'rounds'} ({total.accountant})",
    ]
    if shuffled is not None:
        lines.append(f"assumes     a trusted shuffler that mixes {shuffled} reports or more")
    lines += plain["warnings"]
    if remark is not None and better is not None:
        lines += [remark, f"A guarantee of epsilon {epsilon_text(better.epsilon)} would be: {better.words()}"]
    console().print("\n".join(lines), markup=False, soft_wrap=True)


@app.command("suggest")
def suggest(
    *,
    dim: Dim,
    epsilon: Annotated[float, typer.Option(max=limits.EPSILON, help="The budget of all rounds together.")] = _BUDGET,
    delta: Delta = 1e-5,
    rounds: Rounds = 20,
    shuffled: Shuffled = None,
    as_json: JsonFlag = False,
) -> None:
    """Suggest settings that keep a budget: they are a guarantee.

    Examples:
      tacit signds suggest --dim 66404 --epsilon 8 --rounds 20
      tacit signds suggest --dim 21840 --epsilon 2 --rounds 50 --shuffled 500
    """
    from tacit.modes import suggestion

    found = suggestion.suggest(dimensions=dim, epsilon=epsilon, delta=delta, participations=rounds, shuffled=shuffled)
    if as_json:
        emit_json(found.to_dict())
        return
    lines = [
        f"tacit run --mode signds {found.words()} --rounds {rounds}",
        f"names       {found.output_dimensions} coordinates, {found.expected_hits:.3f} of them in the mean among the "
        f"largest {100 * found.sign_k:g}%",
        f"costs       epsilon {epsilon_text(found.epsilon, digits=4)} at delta {delta:g} after {rounds} rounds "
        f"({found.accountant})",
    ]
    if shuffled is not None:
        lines.append(f"assumes     a trusted shuffler that mixes {shuffled} reports or more (signds.shuffle=true)")
    console().print("\n".join(lines), markup=False, soft_wrap=True)
