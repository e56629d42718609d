"""Numbers for people."""

from __future__ import annotations

import math

from tacit.runs.result import RoundRecord


def bytes_text(count: float) -> str:
    """Return a size.

    >>> bytes_text(873_870), bytes_text(12)
    ('874 kB', '12 B')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.3g} {unit}"


def seconds_text(seconds: float) -> str:
    """Return a duration.

    >>> seconds_text(0.0421), seconds_text(4.2), seconds_text(75)
    ('42 ms', '4.2 s', '1 min 15 s')
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"


def cohort_text(record: RoundRecord) -> str:
    """Return how many clients a round had, as far as that may be told: those who replied of those who were asked."""
    if record.clients_asked is None:
        return f"about {record.clients_expected:.3g}"
    return (
        str(record.clients_asked)
        if record.clients_replied is None
        else f"{record.clients_replied}/{record.clients_asked}"
    )


def percent(share: float | None) -> str:
    """Return a share in percent, or a dash.

    >>> percent(0.98765), percent(None)
    ('98.77%', '-')
    """
    return "-" if share is None else f"{100 * share:.2f}%"


def epsilon_text(value: float) -> str:
    """Return an epsilon.

    >>> epsilon_text(0.37765), epsilon_text(1350.42), epsilon_text(2.57e6), epsilon_text(float("inf"))
    ('0.378', '1350', '2.6e+06', 'infinite')
    """
    if value == math.inf:
        return "infinite"
    return f"{value:.3g}" if value < 999.5 else f"{value:.0f}" if value < 99_999.5 else f"{value:.1e}"


def value_text(value: object) -> str:
    """Return a setting's value.

    >>> value_text(0.30000000000000004), value_text("iid")
    ('0.3', 'iid')
    """
    return f"{value:.4g}" if isinstance(value, float) else str(value)
