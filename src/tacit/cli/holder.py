"""``tacit holder``: a key holder's own process, its rules, and what it remembers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import passphrases
from tacit.cli.keyoptions import spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json

if TYPE_CHECKING:
    from tacit.holder.memory import Memory
    from tacit.holder.settings import Settings

app = typer.Typer(help="Hold a key, or a share of one, in a process of its own.", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(help="The holder's folder.", metavar="FOLDER")]
_SHOWN = 5  # of the last openings and refusals


@app.command("init")
def init(
    *,
    key: Annotated[Path, typer.Option(help="The private key, or the share, that this holder has.", metavar="FILE")],
    clients: Annotated[
        Path, typer.Option(help="The true clients' public keys, one per line (tacit keys identity).", metavar="FILE")
    ],
    minimum_clients: Annotated[int, typer.Option(min=2, help="The fewest clients of a sum.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="The most rounds that a run may have.")] = 500,
    openings: Annotated[int, typer.Option(min=1, help="The most sums that are opened in the life of the key.")] = 2000,
    differences: Annotated[str, typer.Option(help="What two sums may tell: pairs, chains or none.")] = "pairs",
    group: Annotated[
        str | None, typer.Option(help="A group of the system that may speak to the socket too.", show_default=False)
    ] = None,
    unsealed: Annotated[bool, typer.Option("--unsealed", help="Allow a key file without a passphrase.")] = False,
    insecure_key_size: Annotated[
        bool, typer.Option("--insecure-key-size", help="Allow keys of less than 2048 bits, for experiments.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The new folder.", metavar="FOLDER")] = Path("holder"),
) -> None:
    """Make a holder's folder: holder.yaml, with a comment for every rule, and the key's memory, still empty.

    Examples:
      tacit holder init --key share-1.key --clients clients.pub --minimum-clients 5 --out holder/
    """
    from tacit.holder.new import init as new
    from tacit.holder.settings import FILE, Settings

    settings = Settings(
        key=key.absolute(),
        clients=clients.absolute(),
        minimum_clients=minimum_clients,
        rounds=rounds,
        openings=openings,
        differences=differences,  # type: ignore[arg-type]  # checked with the rest, as the file is read
        group=group,
        unsealed=unsealed,
        insecure_key_size=insecure_key_size,
    )
    with spoken_warnings():
        new(out, settings)
    typer.echo(f"Wrote {out / FILE}; read it, then: tacit holder check {out} && tacit holder serve {out}")


@app.command("check")
def check(folder: Folder, as_json: JsonFlag = False) -> None:
    """Say what would be allowed and refused, how much of the key's life is spent, and what was refused of late."""
    from tacit.holder import process
    from tacit.holder.memory import Memory
    from tacit.holder.settings import MEMORY, Settings

    settings = Settings.read(folder)
    with spoken_warnings():
        file = process.key_file(settings)
    clients = process.known_clients(settings)
    memory = Memory(folder / MEMORY, process.memory_identity(file))
    facts = {
        "key": file.title,
        "fingerprint": file.public.fingerprint,
        "sealed": file.sealed,
        "clients": len(clients),
        **_plain(settings, memory),
    }
    memory.close()
    if as_json:
        emit_json(facts)
        return
    out = console()
    for line in _words(facts):
        out.print(line, soft_wrap=True, markup=False)


@app.command("serve")
def serve(
    folder: Folder,
    *,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
) -> None:
    """Unlock the key and answer at FOLDER/socket until it is told to stop (SIGTERM, Ctrl-C).

    Three frames are answered: what the key is, who is admitted to a run, and sums that holder.yaml allows.

    Examples:
      tacit holder serve holder/
      tacit holder serve holder/ --passphrase-command 'vault kv get -field=words secret/holder-1'
    """
    import logging
    import resource

    from tacit.holder.process import KeyHolder
    from tacit.service import SOCKET, Service, stopped_by_signals

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a process that crashes leaves no copy of the key
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    words = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)

    def passphrase(path: Path) -> str:
        return passphrases.for_loading(words, [path])(path)

    with spoken_warnings():
        holder = KeyHolder(folder, passphrase)
    service = Service(
        path=folder / SOCKET,
        answer=holder.message,
        group=holder.settings.group,
        largest=holder.largest,
    )
    with service, stopped_by_signals(service):
        typer.echo(f"Key {holder.public.fingerprint[:23]}… is held at {service.path} (process {os.getpid()}).")
        service.run()
    holder.close()


def _plain(settings: Settings, memory: Memory) -> dict[str, Any]:
    opened, refused = memory.opened, memory.refused
    return {
        "minimum_clients": settings.minimum_clients,
        "rounds": settings.rounds,
        "openings": settings.openings,
        "differences": settings.differences,
        "opened": len(opened),
        "last_opened": [
            {"at": one.at, "run": one.run.hex()[:8], "round": one.round_number, "clients": one.clients}
            for one in opened[-_SHOWN:]
        ],
        "refused": len(refused),
        "last_refused": [{"at": one.at, "kind": one.kind, "reason": one.reason} for one in refused[-_SHOWN:]],
    }


_DIFFERENCES = {
    "pairs": "Refused: a sum whose clients differ from those of an earlier one by 1 to {most}.",
    "chains": "Refused: a sum after which fewer than {least} clients were in the same sums as each other.",
    "none": "Two sums are NOT compared: only noise that clients add hides what their difference shows.",
}


def _words(facts: dict[str, Any]) -> list[str]:
    least, left = facts["minimum_clients"], max(0, facts["openings"] - facts["opened"])
    lines = [
        f"{facts['key']}, {'sealed' if facts['sealed'] else 'NOT SEALED'}, fingerprint {facts['fingerprint']}",
        f"Allowed: sums of {least} or more of {facts['clients']} clients that are listed, one per round, in runs of up "
        f"to {facts['rounds']} rounds.",
        _DIFFERENCES[facts["differences"]].format(least=least, most=least - 1),
        f"Spent: {facts['opened']} of {facts['openings']} openings in the life of this key; {left} are left.",
    ]
    lines += [
        f"  {one['at']}  opened   run {one['run']} round {one['round']}: {one['clients']} clients"
        for one in facts["last_opened"]
    ]
    if facts["refused"]:
        lines.append(f"Refused so far: {facts['refused']}{' (the last ones)' if facts['refused'] > _SHOWN else ''}")
    lines += [f"  {one['at']}  refused  {one['kind']}: {one['reason']}" for one in facts["last_refused"]]
    return lines
