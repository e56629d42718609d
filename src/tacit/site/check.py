"""What a site would allow and what it would refuse, in plain words, before anybody asks."""

from __future__ import annotations

from collections.abc import Callable
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
from tacit.site.costs import AGAINST, Price, composed, price_of
from tacit.site.ledger import Ledger, prices_of


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
        prices: of all releases so far, each with how often.
        rows: how many rows the data have; None where a run deals them out.
    """

    contract: Contract
    spent: float
    releases: int
    prices: tuple[tuple[Price, int], ...]
    rows: int | None
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


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """What would become of a run.

    Attributes:
        refusal: why it would be refused at once.
        rounds: how many it asks for.
        fits: how many of them the budget allows, if this site is in all of them.
        reply: the epsilon of one reply by itself.
        after: what epsilon would be after all rounds.
    """

    refusal: str | None = None
    rounds: int = 0
    fits: int = 0
    reply: float = 0.0
    after: float = 0.0

    @property
    def allowed(self) -> bool:
        """Whether all of it would be answered."""
        return self.refusal is None and self.fits >= self.rounds

    @property
    def words(self) -> str:
        """What would become of it, in a sentence."""
        if self.refusal is not None:
            return f"would be refused. {self.refusal.rstrip('.')}."
        cost = f"a reply costs epsilon {epsilon_text(self.reply, digits=4)} by itself"
        if not self.allowed:
            return f"would be answered in {self.fits} of {self.rounds} rounds, and then the budget is spent: {cost}."
        whole = epsilon_text(self.after, digits=4)
        return f"would be allowed: {cost}, and all {self.rounds} rounds would bring epsilon to {whole}."


def check(folder: Path) -> Checked:
    """Look at a site as its process would when it starts; what would stop it is raised."""
    folder = folder.absolute()
    check_private(folder)
    contract = read(folder)
    datas.check_same(contract.data)
    loaded = datas.load(contract.data)
    with Ledger.open(folder / LEDGER, contract) as ledger:
        rows, spent = ledger.rows(), ledger.spent(contract)
    known = [name for name in contract.rules.modes if name in MODES]
    if strangers := [name for name in contract.rules.modes if name not in MODES]:
        raise ConfigError(f"rules.modes names {', '.join(strangers)}. Modes of this version: {', '.join(MODES)}.")
    verdicts = tuple(_verdict(mode, contract) for mode in MODES.values())
    return Checked(
        contract=contract,
        spent=spent,
        releases=len(rows),
        verdicts=verdicts,
        remarks=_remarks(contract, known),
        prices=tuple(prices_of(rows).items()),
        rows=None if loaded is None else len(loaded.labels),
    )


def of_run(config: RunConfig, checked: Checked) -> Proposal:
    """Return what would become of a run with these settings."""
    contract = checked.contract
    try:
        resolved = resolve(config.model_copy(update={"engine": "flower"}))
        clients = resolved.federate.clients
        if clients is None:
            raise ConfigError("federate.clients has to be set: how many clients the federation has.")
        plan = plan_of(resolved, clients)
        if (refusal := rules.verdict(resolved, plan, contract)) is not None:
            return Proposal(refusal=refusal)
        examples = None
        if plan.examples is not None and checked.rows is not None:
            examples = plan.examples.fitted([checked.rows])
            rules.check_passes(examples, 0, contract)
        price = price_of(plan, plan.mechanism, examples=examples, party=0)
        rules.check_price(price, contract)
    except TacitError as error:
        return Proposal(refusal=str(error))

    def after(count: int) -> float:
        return composed([*checked.prices, (price, count)], contract.budget)

    rounds, limit = resolved.federate.rounds, contract.budget.epsilon
    fits = rounds if limit is None or after(rounds) <= limit else _largest(lambda count: after(count) <= limit, rounds)
    return Proposal(rounds=rounds, fits=fits, reply=composed([(price, 1)], contract.budget), after=after(rounds))


def _largest(fits: Callable[[int], bool], beyond: int) -> int:
    """Return the largest count below ``beyond`` that fits; more never costs less."""
    low = 0
    while beyond - low > 1:
        middle = (low + beyond) // 2
        low, beyond = (middle, beyond) if fits(middle) else (low, middle)
    return low


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
