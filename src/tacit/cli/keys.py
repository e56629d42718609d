"""``tacit keys``: new key pairs and shares, and what a key file holds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import limits
from tacit.cli import passphrases
from tacit.cli.keyoptions import InsecureKeySize, spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.cli.watching import watching

if TYPE_CHECKING:
    from tacit.crypto.keyfile import KeyFile, Public

app = typer.Typer(help="Make keys, and look at them.", no_args_is_help=True)

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
    insecure_key_size: InsecureKeySize = False,
    as_json: JsonFlag = False,
) -> None:
    """Make a key pair: public.key, and private.key or the shares of a threshold key.

    Nothing is ever overwritten. Files with secrets are readable by you alone.

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
    words = passphrases.for_new_key(passphrase_file, prompt=passphrase)
    newkeys.check_passphrase(words)
    with watching(quiet=as_json) as watch:
        keys = newkeys.make(asked, watch.search)
    newkeys.write(paths, keys, words)
    facts = _facts(_read(paths[0]))
    made = {"files": [str(path) for path in paths], "sealed": words is not None}
    if as_json:
        emit_json({**facts, **made})
        return
    keyreport.summary(console(), facts, paths, sealed=words is not None)


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
