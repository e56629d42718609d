"""Numbers for people."""

from __future__ import annotations


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


def percent(share: float | None) -> str:
    """Return a share in percent, or a dash.

    >>> percent(0.98765), percent(None)
    ('98.77%', '-')
    """
    return "-" if share is None else f"{100 * share:.2f}%"
