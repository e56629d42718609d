"""What a site would allow and what it would refuse, in plain words, before anybody asks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.config.run_config import RunConfig
from tacit.errors import ConfigError, TacitError
from tacit.modes.catalogue import MODES, plan_of, resolve
from tacit.modes.mode import Mode
from tacit.rounding import epsilon_text
from tacit.site import data as datas
from tacit.site import rules
from tacit.site.contract import LEDGER, Contract, check_private, read
from tacit.site.costs import AGAINST
from tacit.site.ledger import Ledger


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What becomes of a mode: whether it can be allowed at all, and why or why not."""

    mode: str
    allowed: bool
    words: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A site, looked at.

    Attributes:
        contract: its own.
        spent: the epsilon of all releases so far.
        releases: how many there were.
        verdicts: of every mode.
        remarks: what its owner should think about.
    """

    contract: Contract
    spent: float
    releases: int
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]

    @property
    def promise(self) -> str:
        """What the budget means, in a sentence."""
        budget = self.contract.budget
        whom = "one row of the data" if budget.unit == "example" else "the site with all its rows"
        spent = epsilon_text(self.spent, digits=4)
        if budget.epsilon is None:
            return f"No limit is set and nothing is promised: epsilon is {spent} so far for {whom}."
        left = "" if self.spent < budget.epsilon else " Nothing more will be answered that costs anything."
        return (
            f"Epsilon {spent} of {budget.epsilon:g} is spent for life, at delta {budget.delta:g}, for {whom}, against "
            f"{AGAINST[budget.trust]}.{left}"
        )


def check(folder: Path) -> Checked:
    """Look at a site as its process would when it starts; what would stop it is raised."""
    folder = folder.absolute()
    check_private(folder)
    contract = read(folder)
    datas.check_same(contract.data)
    datas.load(contract.data)
    with Ledger.open(folder / LEDGER, contract) as ledger:
        releases, spent = len(ledger.rows()), ledger.spent(contract)
    known = [name for name in contract.rules.modes if name in MODES]
    if strangers := [name for name in contract.rules.modes if name not in MODES]:
        raise ConfigError(f"rules.modes names {', '.join(strangers)}. Modes of this version: {', '.join(MODES)}.")
    verdicts = tuple(_verdict(mode, contract) for mode in MODES.values())
    return Checked(
        contract=contract, spent=spent, releases=releases, verdicts=verdicts, remarks=_remarks(contract, known)
    )


def of_run(config: RunConfig, contract: Contract) -> str | None:
    """Return why a run with these settings would be refused, or None where it would not."""
    try:
        resolved = resolve(config.model_copy(update={"engine": "flower"}))
        if resolved.federate.clients is None:
            return "federate.clients has to be set: how many clients the federation has."
        return rules.verdict(resolved, plan_of(resolved, resolved.federate.clients), contract)
    except TacitError as error:
        return str(error)


def _verdict(mode: Mode, contract: Contract) -> Verdict:
    refusal = next((words for applies, words in _refusals(mode, contract) if applies), None)
    return Verdict(
        mode=mode.name,
        allowed=refusal is None,
        words=f"allowed: {_charged(mode, contract)}" if refusal is None else f"refused: {refusal}",
    )


def _refusals(mode: Mode, contract: Contract) -> list[tuple[bool, str]]:
    """Return what may stand against a mode, whatever its settings, and whether it does."""
    told, limited = contract.rules.tell, contract.budget.epsilon is not None
    rows = mode.examples == "always"
    open_ = not mode.adds_noise and not mode.hidden
    return [
        (mode.name not in contract.rules.modes, "rules.modes does not name it."),
        (limited and rows and contract.budget.unit == "client", "it protects rows, and budget.unit is client."),
        (rows and "examples" not in told, "it makes the number of rows known; rules.tell does not name examples."),
        (
            limited and mode.central and contract.budget.trust != "server",
            "the server adds the noise and sees the update, and budget.trust is not server.",
        ),
        (limited and open_, "nothing hides what is sent, and there is a budget."),
        (open_ and not {"loss", "examples"} <= set(told), "it tells loss and examples, which rules.tell does not."),
    ]


def _charged(mode: Mode, contract: Contract) -> str:
    """Return by what a reply of an allowed mode is charged."""
    if mode.examples == "always":
        return "each reply is charged by the site's own DP-SGD, against everyone."
    if mode.central:
        return "the server is trusted to add the noise it announces, which is what is charged."
    if mode.hidden:
        share = "the site's own share of the noise" if contract.budget.trust == "nobody" else "the whole sum's noise"
        return f"with its noise turned on each reply is charged by {share}; without noise epsilon is infinite."
    if not mode.adds_noise:
        return "and nothing is promised, as no budget is set."
    return "each reply is charged by the site's own noise, against everyone."


def _remarks(contract: Contract, modes: list[str]) -> tuple[str, ...]:
    said = []
    keys, budget = contract.keys, contract.budget
    if any(MODES[name].encrypted for name in modes) and keys.pin is None:
        said.append("No key is pinned (keys.pin), so nothing will be encrypted: encrypted runs will be refused.")
    if any(MODES[name].hidden and not MODES[name].encrypted for name in modes) and keys.clients is None:
        said.append("The other clients are not known (keys.clients): under masks a server could invent some.")
    if budget.trust != "nobody":
        said.append(f"budget.trust is {budget.trust}: epsilon holds against {AGAINST[budget.trust]}.")
    if contract.simulation:
        said.append("simulation is true: whoever knows a run's seed can take the noise away. For public data only.")
    if contract.group is None:
        said.append(
            "group is null: the SuperNode runs as the same user, and an app that it runs could read these files. Give "
            "it a user of its own."
        )
    return tuple(said)
