"""What people read of keys: the facts, and who should hold what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.cli.keyoptions import INSECURE, fingerprint_lines

if TYPE_CHECKING:
    from rich.console import Console


def describe(out: Console, facts: dict[str, Any], *, title: str) -> None:
    """Print what may be known of a key."""
    from rich.table import Table
    from rich.text import Text

    out.print(Text(title, style="bold"))
    level = "no security to speak of" if facts["security"] is None else f"about {facts['security']} bits of security"
    rows = {
        "kind": f"{facts['title']} ({facts['variant']})" + (", sealed with a passphrase" if facts["sealed"] else ""),
        "length": f"{facts['bits']} bits, {level}",
        "fingerprint": fingerprint_lines(facts["fingerprint"]),
        "rests on": facts["assumption"],
    }
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in rows.items():
        table.add_row(Text(f"  {name}", style="dim"), Text(value))
    out.print(table)
    if facts["insecure"]:
        out.print(Text("  " + INSECURE.format(bits=facts["bits"]), style="bold red"))


def summary(out: Console, facts: dict[str, Any], paths: Sequence[Path], *, sealed: bool) -> None:
    """Print the new keys and who should hold what."""
    from rich.table import Table
    from rich.text import Text

    describe(out, {**facts, "title": facts["title"].replace("public key", "key")}, title="New keys")
    out.print()
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_row(
        Text(f"  {paths[0]}", style="green"),
        Text("for everybody who encrypts or adds; let them compare the fingerprint with you, not with the file"),
    )
    closed = "sealed with the passphrase" if sealed else "not sealed: whoever reads the file has what is in it"
    if len(paths) == 2:
        table.add_row(
            Text(f"  {paths[1]}", style="yellow"),
            Text(f"for you or a key authority, never for whoever adds; readable by you alone, {closed}"),
        )
    else:
        table.add_row(
            Text(f"  {paths[1]} … {paths[-1].name}", style="yellow"),
            Text(f"one for each holder, then erase them here; readable by you alone, {closed}"),
        )
    out.print(table)
    following = f"tacit encrypt --key {paths[0]} update.npy -o update.tct"
    if facts["kind"].startswith("elgamal"):
        following = f"tacit keys show {paths[0]}; ElGamal keys are used from Python, see tacit.crypto.elgamal"
    out.print(Text(f"\ntry next: {following}", style="dim"))
