"""``tacit audit``: a claim attacked, and the lower bound on epsilon that the attack reached."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import completion
from tacit.cli.epsilon import Delta
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.rounding import bound_text, epsilon_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

    from tacit.audit.audit import Finding
    from tacit.audit.subject import Subject
    from tacit.randomness import Randomness


def audit(
    target: Annotated[
        str | None,
        typer.Argument(
            help="A run's folder, a mode's name, or package.module:Name of a mechanism.",
            autocompletion=completion.of_runs,
        ),
    ] = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Every mode with its default settings.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="500 trials in place of 3,000: seconds, a weaker bound.")
    ] = False,
    claim: Annotated[
        float | None, typer.Option(min=0.0, help="Epsilon that a mechanism of your own is said to have per release.")
    ] = None,
    delta: Delta = 1e-5,
    neighbours: Annotated[
        str, typer.Option(help="Of a mechanism of your own: add-remove, replace-one or zero-out.")
    ] = "add-remove",
    seed: Annotated[
        int | None, typer.Option(min=0, help="Makes the audit repeatable; without it the noise is the real one.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Attack a claim: play its releases on worst cases, and report what epsilon is at least, with 95% confidence.

    The exit status is 1 where a claim is false.

    Examples:
      tacit audit runs/a
      tacit audit dp
      tacit audit --all --quick
      tacit audit mypackage.mechanism:Mine --claim 4
    """
    from tacit.audit.audit import QUICK, Effort
    from tacit.audit.audit import audit as attack
    from tacit.randomness import Randomness

    effort = QUICK if quick else Effort()
    randomness = Randomness.of(seed=seed)
    findings: list[Finding] = []
    silent: list[str] = []
    for name, subjects in _asked(target, every, claim, delta, neighbours, randomness):
        findings += [attack(subject, effort=effort) for subject in subjects]
        silent += [] if subjects else [name]
    if as_json:
        emit_json({"findings": [finding.to_dict() for finding in findings], "claim_nothing": silent})
    else:
        _show(findings, silent)
    if any(finding.refuted for finding in findings):
        raise typer.Exit(1)


def _asked(
    target: str | None, every: bool, claim: float | None, delta: float, neighbours: str, randomness: Randomness
) -> Iterator[tuple[str, list[Subject]]]:
    """Yield what is to be audited."""
    from tacit.audit import cases
    from tacit.errors import ConfigError
    from tacit.modes.catalogue import MODES

    if every == (target is not None):
        raise ConfigError("Expected a run's folder, a mode, package.module:Name, or --all: one of them.")
    if every:
        yield from cases.of_all(randomness=randomness)
        if find_spec("flwr") is not None:
            from tacit.flower.strategy.audited import subject

            seed = randomness.number("flower") if randomness.simulation else None
            yield "flower", [subject(seed=seed)]
        return
    assert target is not None
    if ":" in target and not Path(target).exists():
        yield (
            target,
            [
                cases.of_mechanism(
                    target,
                    claim=claim,
                    delta=delta,
                    neighbours=neighbours,  # type: ignore[arg-type]  # checked there, with a sentence for people
                    randomness=randomness,
                )
            ],
        )
        return
    if claim is not None:
        raise ConfigError(f"--claim is for a mechanism of your own; {target} states its own. Leave it out.")
    if target in MODES and not Path(target).exists():
        yield target, cases.of_mode(target, randomness=randomness)
    else:
        yield target, cases.of_run(Path(target), randomness=randomness)


def _show(findings: list[Finding], silent: list[str]) -> None:
    out = console()
    if len(findings) > 1:
        out.print(_table(findings))
    for finding in findings:
        if len(findings) == 1 or finding.refuted:
            out.print(sentence(finding), markup=False)
    if silent:
        out.print(
            f"{', '.join(silent)}: no differential privacy is claimed, so there is nothing to audit.", markup=False
        )
    if findings:
        trials, releases = findings[0].trials, findings[0].releases
        out.print(
            f"Claim and bounds are of {'one release' if releases == 1 else f'{releases} releases'}; a bound needs many "
            f"trials to come close ({trials:,} in each world here), so what was not found may still be there.",
            markup=False,
        )


def _table(findings: list[Finding]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("", "claim", "at least", "any shape", "worst of what was tried", ""):
        table.add_column(name, justify="right" if name in ("claim", "at least", "any shape") else "left")
    for finding in findings:
        table.add_row(
            finding.subject,
            epsilon_text(finding.epsilon),
            bound_text(finding.bound),
            bound_text(finding.any_shape),
            finding.pair,
            "FALSE" if finding.refuted else "holds up",
        )
    return table


def sentence(finding: Finding) -> str:
    """Return what an audit found, for people."""
    verdict = (
        "The claim is false."
        if finding.refuted
        else "The attack found nothing against the claim, which is no proof of it."
    )
    shape = "" if finding.bound == finding.any_shape else f" ({bound_text(finding.any_shape)} whatever its shape)"
    return (
        f"{finding.subject}: epsilon {epsilon_text(finding.epsilon)} is claimed and is at least "
        f"{bound_text(finding.bound)}{shape}, at delta {finding.delta:g}, with {100 * finding.confidence:g}% "
        "confidence\n"
        f"  for one {finding.unit} ({finding.neighbours}) against {finding.against}\n"
        f"  by {finding.pair}, the worst of {len(finding.tried)} that were tried\n{verdict}"
    )
