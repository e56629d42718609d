"""Who took part in a run, who dropped out, and who holds which data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tacit.report.page import Cell, Chart, Note, Part, Section, State, Table, Text, bars, heatmap
from tacit.report.words import cohort_text, shortened, without_names
from tacit.runs.history import History, Participation

_MOST_CLIENTS = 150  # with more, clients are shown by how many there are of each kind
_MOST_ROUNDS = 200
_SECRET = (
    "Which clients took part, how many they were and who replied is kept nowhere: epsilon counts on nobody knowing. "
    "With `dp.amplification=false` a run tells it, and pays for it."
)
_NO_SPLIT = (
    "How the data are split is left out: the data set is the user's own, and epsilon does not cover such counts. "
    "`tacit report --full` shows it, in a page for your eyes only."
)
_KEPT = "How the data are split is kept nowhere: they are the user's own, and epsilon does not cover such counts."
_UNSAID = (
    "The journal does not say how the data are split: it is of an older version, or of too many clients to say it of "
    "each."
)
_PUBLIC = "The data set is public, so these counts are shown; nobody's epsilon covers them."
_STATES = (
    State(name="not asked", colour="grid"),
    State(name="dropped out", colour="series-2", mark="×"),
    State(name="answered", colour="series-1"),
)


def section(history: History, *, full: bool) -> Section:
    """Return the clients; what must not be known is left out unless ``full`` is asked for."""
    if history.secret_cohort:
        parts: list[Part] = [*_planned(history), *_failures(history, full=full), Note(text=_SECRET)]
        if full and history.secrets:
            rows, left_out = shortened([(text,) for text in history.secrets])
            parts.append(Table(columns=("what the server alone may know",), rows=rows, align="l", caption=left_out))
    else:
        parts = [*_by_round(history), *_failures(history, full=full), *_by_client(history)]
    parts += _scores(history)
    parts += _split(history, full=full)
    return Section(title="Clients", parts=parts)


def _planned(history: History) -> list[Part]:
    if not history.rounds:
        return [Text(text="No round was finished.")]
    return [Text(text=f"{len(history.rounds):,} rounds, each planned for {cohort_text(history.rounds[-1])} clients.")]


def _by_round(history: History) -> list[Part]:
    rounds = history.rounds
    if not rounds:
        return [Text(text="No round was finished.")]
    answered = [record.clients_replied or 0 for record in rounds]
    dropped = [(record.clients_asked or 0) - replied for record, replied in zip(rounds, answered, strict=True)]
    lost = sum(dropped)
    asked = sum(answered) + lost
    told = f"Of {asked:,} requests in {len(rounds):,} rounds {sum(answered):,} were answered; " + (
        "nobody dropped out." if not lost else f"{lost:,} were not (drop-outs: {lost / max(asked, 1):.1%})."
    )
    parts: list[Part] = [Text(text=told)]
    if len({*answered}) > 1 or lost:
        parts.append(
            bars(
                title="Clients in each round",
                categories=[record.round for record in rounds],
                series={"answered": answered} | ({"dropped out": dropped} if lost else {}),
                x_title="round",
                y_title="clients",
                stacked=True,
                height=280,
            )
        )
    return parts


def _failures(history: History, *, full: bool) -> list[Part]:
    if not history.failures:
        return []
    hide = history.secret_cohort and not full
    rows, left_out = shortened(
        [
            (failure.round, failure.attempt + 1, without_names(failure.reason) if hide else failure.reason)
            for failure in history.failures
        ]
    )
    caption = f"Tries that failed. {left_out}".strip()
    return [Table(columns=("round", "try", "why"), rows=rows, align="rrl", caption=caption)]


def _by_client(history: History) -> list[Part]:
    known = [told for told in history.participation if told.asked is not None and told.dropped is not None]
    if not known:
        why = "it is of an older version, or rounds have too many clients to be named"
        return [Text(text=f"The journal does not say who took part: {why}.")] if history.rounds else []
    asked = Counter(client for told in known for client in told.asked or ())
    dropped = Counter(client for told in known for client in told.dropped or ())
    if len(asked) == history.clients and set(asked.values()) == {len(known)} and not dropped:
        return [Text(text=f"All {history.clients:,} clients took part in every round.")]
    if history.clients > _MOST_CLIENTS:
        return [_participation_table(history, asked, dropped)]
    if len(known) <= _MOST_ROUNDS:
        return [_map(history, known)]
    answered = [asked[client] - dropped[client] for client in range(history.clients)]
    return [
        bars(
            title="Rounds of each client",
            categories=_named(history),
            series={"answered": answered, "dropped out": [dropped[client] for client in range(history.clients)]},
            x_title="client",
            y_title="rounds",
            stacked=True,
        )
    ]


def _map(history: History, known: Sequence[Participation]) -> Chart:
    """Return a grid of clients and rounds, coloured by what a client did."""
    grid = [[0] * len(known) for _ in range(history.clients)]
    for column, told in enumerate(known):
        for client in told.asked or ():
            grid[client][column] = 2
        for client in told.dropped or ():
            grid[client][column] = 1
    return heatmap(
        title="Who took part",
        x=[told.round_number for told in known],
        y=_named(history),
        z=grid,
        x_title="round",
        y_title="client",
        states=_STATES,
        downwards=True,
        height=min(900, 150 + 14 * history.clients),
        caption="Blue: answered. Orange with a cross: asked, but dropped out. Grey: not asked.",
    )


def _participation_table(history: History, asked: Counter[int], dropped: Counter[int]) -> Table:
    """Return how many clients were asked how often, where there are too many to name."""
    times = Counter(asked[client] for client in range(history.clients))
    lost = Counter[int]()
    for client in range(history.clients):
        lost[asked[client]] += dropped[client]
    rows, left_out = shortened([(count, times[count], lost[count]) for count in sorted(times)])
    return Table(
        columns=("asked in rounds", "clients", "their drop-outs"),
        rows=rows,
        caption=f"How often clients were asked. {left_out}".strip(),
    )


def _scores(history: History) -> list[Part]:
    """Return what the final model is worth on each client's own data, where that was asked for."""
    scores = {} if history.result is None else history.result.client_scores
    if not scores:
        return []
    names = list(dict.fromkeys(name for told in scores.values() for name in told))
    rows, left_out = shortened([(client, *(told.get(name) for name in names)) for client, told in scores.items()])
    caption = f"The final model on each client's own training data. {left_out}".strip()
    return [Table(columns=("client", *names), rows=rows, caption=caption)]


def _split(history: History, *, full: bool) -> list[Part]:
    split = history.start.split
    if split is None and history.own_data and history.plan.private:
        return [Note(text=_KEPT)]
    if split is None:
        return [Text(text=_UNSAID)]
    if history.own_data and not full:
        return [Note(text=_NO_SPLIT)]
    sizes = split.sizes
    parts: list[Part] = [Text(text=f"{_sizes(sizes)} {'' if history.own_data else _PUBLIC}".strip())]
    counts = split.counts
    if counts is not None and len(sizes) <= _MOST_CLIENTS:
        parts.append(_classes(counts, _named(history), history.start.classes or ()))
    elif len(sizes) <= _MOST_CLIENTS:
        parts.append(_size_bars(_named(history), sizes))
    else:
        parts.append(_size_table(sizes, counts))
    return parts


def _sizes(sizes: Sequence[int]) -> str:
    if len(sizes) == 1:
        return f"One data holder has all {sizes[0]:,} examples."
    ordered = sorted(sizes)
    return (
        f"{len(sizes):,} clients hold {sum(sizes):,} examples: the smallest {ordered[0]:,}, the median "
        f"{ordered[len(ordered) // 2]:,}, the largest {ordered[-1]:,}."
    )


def _named(history: History) -> list[str | int]:
    """Return the clients by their names, or by their numbers where they have none."""
    return (
        [history.name_of(client) for client in range(history.clients)]
        if history.start.client_names
        else list(range(history.clients))
    )


def _classes(counts: Sequence[Sequence[int]], names: Sequence[str | int], classes: Sequence[str]) -> Chart:
    return heatmap(
        title="How the data are split",
        x=list(classes) or list(range(len(counts[0]))),
        y=names,
        z=counts,
        x_title="class",
        y_title="client",
        z_title="examples",
        z_format=",d",
        z_ends=(0, max(map(max, counts))),
        downwards=True,
        height=min(900, max(260, 150 + 14 * len(counts))),
    )


def _size_bars(clients: Sequence[str | int], sizes: Sequence[int]) -> Chart:
    return bars(
        title="How the data are split",
        categories=clients,
        series={"examples": sizes},
        x_title="client",
        y_title="examples",
    )


def _size_table(sizes: Sequence[int], counts: Sequence[Sequence[int]] | None) -> Table:
    rows: list[tuple[Cell, ...]] = [("examples", *_quantiles(sizes))]
    if counts is not None:
        rows.append(("classes", *_quantiles([sum(count > 0 for count in row) for row in counts])))
    return Table(columns=("a client holds", "smallest", "quarter", "median", "three quarters", "largest"), rows=rows)


def _quantiles(values: Sequence[int]) -> tuple[int, ...]:
    ordered = sorted(values)
    return tuple(ordered[round(share * (len(ordered) - 1))] for share in (0, 0.25, 0.5, 0.75, 1))
