"""``tacit keys``: new key pairs and shares, and what a key file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import limits
from tacit.cli import passphrases, refresh
from tacit.cli.keyoptions import InsecureKeySize, spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.cli.watching import watching
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from tacit.crypto.keyfile import KeyFile, Public

app = typer.Typer(help="Make keys, and look at them.", no_args_is_help=True)
app.add_typer(refresh.app, name="refresh")

KeyPath = Annotated[Path, typer.Argument(help="A key file.", metavar="FILE")]


@app.command("new")
def new(
    scheme: Annotated[str, typer.Argument(help="paillier or elgamal.", metavar="SCHEME")],
    *,
    bits: Annotated[
        int | None,
        typer.Option(
            max=limits.KEY_BITS,
            help="Length of the modulus; for elgamal: search a prime of one's own.",
            show_default="3072",
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="paillier: standard, or subgroup (faster, own assumption).", show_default="standard"),
    ] = None,
    exponents: Annotated[
        str | None,
        typer.Option(
            help="paillier: half, or short (faster, stronger assumption); elgamal: short or full.",
            show_default="half; short",
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            help="paillier: T/L, any T of L holders decrypt together, T more than half of L.",
            metavar="T/L",
            show_default=False,
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="elgamal: a group of RFC 7919 or 3526.", show_default="ffdhe3072")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the new files.", metavar="FOLDER")] = Path("keys"),
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for a passphrase, twice, and seal what is secret with it.")
    ] = False,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
    insecure_key_size: InsecureKeySize = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a key pair: public.key, and private.key or the shares of a threshold key.

    Nothing is ever overwritten. Files with secrets are readable by you alone. Each share has a passphrase of its own:
    you are asked for each, a file has one line for each, and a command is run for each.

    Examples:
      tacit keys new paillier --out keys/ --passphrase
      tacit keys new paillier --shares 3/5 --out keys/
      tacit keys new elgamal --out keys/
    """
    from tacit.cli import keyreport, newkeys
    from tacit.crypto.new_keys import parse_shares

    asked = newkeys.Asked(
        scheme=scheme,
        bits=bits,
        kind=kind,
        exponents=exponents,
        shares=None if shares is None else parse_shares(shares),
        group=group,
        insecure_key_size=insecure_key_size,
    )
    paths = newkeys.free_paths(out, asked)
    source = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    words = passphrases.for_new_keys(paths[1:], source, prompt=passphrase)
    newkeys.check_passphrases(words)
    with watching(quiet=as_json) as watch:
        keys = newkeys.make(asked, watch.search)
    newkeys.write(paths, keys, words)
    facts = _facts(_read(paths[0]))
    made = {"files": [str(path) for path in paths], "sealed": words[0] is not None}
    if as_json:
        emit_json({**facts, **made})
        return
    keyreport.summary(console(), facts, paths, sealed=words[0] is not None)


@app.command("seal")
def seal(
    path: KeyPath,
    *,
    new_passphrase_file: Annotated[
        Path | None,
        typer.Option(help="Read the new passphrase from the first line of this file; else it is asked for, twice."),
    ] = None,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
) -> None:
    """Seal a private key or a share with a passphrase, or with a new one in place of the old.

    The file is replaced, whole or not at all. A copy that somebody made of it before is as open as it was.

    Examples:
      tacit keys seal share-2.key
    """
    from tacit.cli import newkeys
    from tacit.crypto import keyfile

    file = _read(path)
    old = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    key = file.unlock(passphrases.for_loading(old, [path]))
    new = passphrases.Source(file=new_passphrase_file)
    (words,) = passphrases.for_new_keys([path], new, prompt=new_passphrase_file is None)
    newkeys.check_passphrases([words])
    keyfile.save(path, key, passphrase=words, replace=True)
    typer.echo(f"{path} is sealed with the new passphrase.")


@app.command("identity")
def identity(
    name: Annotated[str, typer.Argument(help="Whose it is, for people; such as st-mary.", metavar="NAME")],
    *,
    out: Annotated[Path, typer.Option(help="The new file; its public half gets .pub.", metavar="FILE")] = Path(
        "identity.key"
    ),
) -> None:
    """Make a client's lasting identity: an Ed25519 key, as ssh-keygen makes it.

    A client signs with it that it takes part in a run. Key holders, and clients under masks, that have the public
    halves of all clients in a file accept nobody else: a server can't invent clients.

    Examples:
      tacit keys identity st-mary --out st-mary.key
    """
    from tacit.protocols.signatures import new_identity
    from tacit.storage import write_atomically

    if not name.isprintable() or not name.strip():
        raise ConfigError(f"Expected a name of letters, got {name!r}.")
    secret, line = new_identity(name.strip())
    for path, data, mode in ((out, secret, 0o600), (out.with_name(f"{out.name}.pub"), line, 0o644)):
        write_atomically(path, data, mode=mode, replace=False, advice="Choose another --out: nothing is overwritten.")
    typer.echo(f"{out} is the client's alone; {out}.pub goes to the key holders: {line.decode().strip()}")


@app.command("show")
def show(path: KeyPath, as_json: JsonFlag = False) -> None:
    """Show what a key file holds; never a secret, and without its passphrase."""
    file = _read(path)
    facts = _facts(file)
    if as_json:
        emit_json({"file": str(path), **facts})
        return
    from tacit.cli import keyreport

    keyreport.describe(console(), facts, title=str(path))


@app.command("fingerprint")
def fingerprint(path: KeyPath, as_json: JsonFlag = False) -> None:
    """Print the fingerprint of a key and nothing else; a private key has its public key's."""
    found = _read(path).public.fingerprint
    if as_json:
        emit_json({"fingerprint": found})
    else:
        typer.echo(found)


def _read(path: Path) -> KeyFile:
    from tacit.crypto import keyfile

    with spoken_warnings():
        return keyfile.read(path, insecure_key_size=True)


def _facts(file: KeyFile) -> dict[str, Any]:
    """Return what may be known of a key."""
    from tacit.crypto.keyfile import length_of, security_of

    public = file.public
    return {
        "kind": file.kind.name,
        "title": file.title,
        **({} if file.share is None else {"share": file.share}),
        "variant": _variant(public),
        "bits": length_of(public),
        "security": security_of(public),
        "insecure": public.insecure,
        "fingerprint": public.fingerprint,
        "assumption": public.assumption,
        "sealed": file.sealed,
    }


def _variant(public: Public) -> str:
    from tacit.crypto import elgamal, threshold

    if isinstance(public, elgamal.PublicKey):
        return f"group {public.group.name}, {public.exponents} exponents"
    if isinstance(public, threshold.ThresholdPublic):
        return f"any {public.threshold} of {public.shares} shares decrypt"
    return f"{public.kind}, {public.exponents} exponents"
