"""The privacy statement of a run: one sheet for whoever has to sign it."""

from __future__ import annotations

from tacit.modes.catalogue import mode_of
from tacit.report.page import Cell, Note, Page, Part, Section, Table, Text
from tacit.report.run import risk
from tacit.report.run.page import banner
from tacit.report.run.summary import RunOutcome
from tacit.report.words import percent, relation_text, short, time_text
from tacit.rounding import epsilon_text
from tacit.runs.history import History

_LINE = "_" * 34
_ENDS = {"finished": "finished", "stopped": "stopped before its end", "unfinished": "has not ended"}
_NONE = "**No differential privacy is claimed.** Nothing bounds what the trained model tells about a client."
_SEEDED = (
    "The run was seeded: whoever knows the seed can compute the noise. The figures are those of the same run with "
    "randomness from the operating system."
)
_ENCRYPTED = "Encryption, where there is any, hides updates on their way; it does not bound what the model tells."


def statement_page(history: History) -> Page:
    """Return what a run promises and what it does not, on one sheet."""
    sections = [
        Section(title="What was done", parts=(Table(columns=(), rows=_facts(history)),)),
        Section(title="What is promised", parts=_promises(history)),
    ]
    if not history.alone:
        sees = history.plan.guarantee
        rows = (("the server", sees.server), ("other clients", sees.clients), ("an outsider", sees.outsider))
        sections.append(Section(title="Who sees what", parts=(Table(columns=(), rows=rows),)))
    sections += [
        Section(title="What is not promised", parts=[Text(text=text) for text in _limits(history)]),
        Section(title="Signed", parts=(Table(columns=(), rows=(("name", _LINE), ("date", _LINE))),)),
    ]
    made = f" (tacit {history.result.version})" if history.result else ""
    return Page(
        title="Privacy statement",
        subtitle=f"Run {history.name}",
        sections=sections,
        banner=banner(history),
        foot=f"Made by `tacit report --statement`{made} from the run's own journal; `tacit ledger` lists every release "
        "that was charged. Figures are upper bounds, composed over the whole run.",
        sheet=True,
    )


def _facts(history: History) -> list[tuple[Cell, ...]]:
    config, start = history.config, history.start
    word = "stretches of steps" if history.alone else "rounds"
    done = f"{len(history.rounds):,} of {config.federate.rounds:,} {word}; the run {_ENDS[history.status]}"
    data = "the user's own" if history.own_data else start.dataset or config.data.name
    rows: list[tuple[Cell, ...]] = [
        ("began", time_text(start.time) if start.time else None),
        ("protection", f"mode {config.mode}: {mode_of(config.mode).summary}"),
        ("data", f"{data}, {start.examples:,} training examples" if start.examples else data),
        ("parties", "one data holder" if history.alone else f"{history.clients:,} clients and a server"),
        ("training", done),
    ]
    outcome = RunOutcome.read(history, full=False)
    if outcome.test_accuracy is not None:
        marked = ", which is no better than chance" if outcome.at_chance else ""
        chance = "" if history.chance is None else f"; chance is {percent(history.chance.share)}"
        rows.append(("test accuracy", f"{percent(outcome.test_accuracy)}{marked}{chance}"))
    return rows


def _promises(history: History) -> list[Part]:
    if not history.levels:
        return [Note(text=_NONE, tone="warn")]
    parts: list[Part] = []
    for level in history.levels:
        told = level.privacy
        claim = f"epsilon {epsilon_text(told.epsilon, digits=4)} at delta {short(told.delta)}, for one {told.unit}"
        budget = "" if level.budget is None else f", of a budget of {short(level.budget)}"
        rows: list[tuple[Cell, ...]] = [
            ("guarantee", f"{claim} ({told.accountant}{budget})"),
            ("hides", relation_text(told.neighbours, told.unit)),
            ("holds against", told.against),
        ]
        parts += [Table(columns=(), rows=rows), Text(text=risk.sentence(told))]
    return parts


def _limits(history: History) -> list[str]:
    said = [risk.limits(level.privacy) for level in history.levels[:1]]
    said += [" ".join(dict.fromkeys(note for level in history.levels for note in level.privacy.notes))]
    if history.start.simulation:
        said.append(_SEEDED)
    return said if history.levels else [*said, _ENCRYPTED]
