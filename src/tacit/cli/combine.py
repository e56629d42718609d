"""``tacit combine``: opens a sum from the parts that the holders of a threshold key sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli import arrays
from tacit.cli.decrypt import Encrypted, finish
from tacit.cli.keyoptions import Force, InsecureKeySize, Output, say, spoken_warnings
from tacit.cli.output import JsonFlag
from tacit.errors import CipherError


def combine(
    encrypted: Encrypted,
    parts: Annotated[list[Path], typer.Argument(help="Files that `tacit decrypt --partial` wrote.", metavar="PART...")],
    *,
    output: Output,
    key: Annotated[
        Path | None,
        typer.Option(help="Refuse anything of another key than this one (public).", metavar="FILE"),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Demand a proof of every part (made with --prove) and check it.")
    ] = False,
    insecure_key_size: InsecureKeySize = False,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Combine the holders' parts of a decryption into an .npy file; no secret is needed.

    Parts that are wrong or missing are named, and a wrong part never gives a wrong result.

    Examples:
      tacit combine sum.tct 1.part 3.part 5.part -o sum.npy
    """
    arrays.check_output(output, force=force)
    from tacit.crypto import cipherfile, keyfile, threshold

    with spoken_warnings():
        pinned = None if key is None else keyfile.load_public(key, insecure_key_size=insecure_key_size)
    source = cipherfile.read(encrypted, expected=pinned, insecure_key_size=insecure_key_size)
    public = source.public
    if not isinstance(public, threshold.ThresholdPublic):
        raise CipherError(
            f"{encrypted} is not encrypted with a threshold key: its private key decrypts it, with `tacit decrypt`."
        )
    read = [cipherfile.read_partial(path, public, insecure_key_size=insecure_key_size) for path in parts]
    combined = public.combine(source.vector, read, verify=verify)
    wrong = [path for path, part in zip(parts, read, strict=True) if part.index in combined.wrong]
    for path in wrong:
        say(f"{path} is wrong and was left out: ask its holder what happened. The result is right all the same.")
    extra = {"used": list(combined.used), "wrong": list(combined.wrong)}
    finish(source, combined.value, output, force=force, as_json=as_json, extra=extra)
