"""``tacit sum``: adds encrypted vectors without opening them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import arrays
from tacit.cli.keyoptions import Force, InsecureKeySize, Output, mark_insecure, plural, say, spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import CipherError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tacit.crypto.cipherfile import EncryptedFile


def sum_vectors(
    files: Annotated[
        list[Path], typer.Argument(help="Files that `tacit encrypt` or `tacit sum` wrote.", metavar="FILE...")
    ],
    *,
    output: Output,
    key: Annotated[
        Path | None,
        typer.Option(help="Refuse vectors of any other key than this one (public).", metavar="FILE"),
    ] = None,
    insecure_key_size: InsecureKeySize = False,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Add encrypted vectors of one key and one layout; no secret is needed.

    The sum is re-randomised, so that nobody can tell from it which vectors went in.

    Examples:
      tacit sum a.tct b.tct c.tct -o sum.tct
      tacit sum updates/*.tct -o sum.tct --key keys/public.key
    """
    arrays.check_output(output, force=force)
    from tacit.crypto import cipherfile, keyfile
    from tacit.crypto.paillier import total

    with spoken_warnings():
        pinned = None if key is None else keyfile.load_public(key, insecure_key_size=insecure_key_size)
    read = [cipherfile.read(path, expected=pinned, insecure_key_size=insecure_key_size, units=False) for path in files]
    _check_alike(read)
    try:
        added = total([file.vector for file in read], check_units=True).rerandomised()
    except CipherError:
        _name_the_forged(read)
        raise
    arrays.write_output(output, cipherfile.pack(read[0].public, added), force=force)
    repeated = _repeated(read)
    for first, second in repeated:
        say(f"{first} and {second} are the same ciphertexts: one vector was added twice.")
    mark_insecure(added.key)
    if as_json:
        emit_json(
            {
                "output": str(output),
                "files": len(read),
                "vectors": added.summands,
                "room": added.layout.summands,
                "numbers": added.layout.length,
                "ciphertexts": added.layout.rows,
                "repeated": [[str(first), str(second)] for first, second in repeated],
                "pinned": pinned is not None,
                "fingerprint": read[0].public.fingerprint,
                "insecure": added.key.insecure,
            }
        )
        return
    console().print(
        f"{output}: the sum of {plural(added.summands, 'vector')} of {plural(added.layout.length, 'number')} "
        f"(room for {added.layout.summands:,}), re-randomised\n"
        f"  key {read[0].public.fingerprint[:23]}… "
        + ("as in the key file" if pinned else "as the files say; pin it with --key"),
        markup=False,
    )


def _check_alike(read: Sequence[EncryptedFile]) -> None:
    """Refuse what can't be added, by the names of the files."""
    first = read[0]
    for file in read[1:]:
        if file.public != first.public:
            raise CipherError(
                f"{file.path} is of key {file.public.fingerprint[:23]}… and {first.path} of "
                f"{first.public.fingerprint[:23]}… : vectors of different keys can't be added."
            )
        if file.vector.layout != first.vector.layout:
            raise CipherError(
                f"{file.path} has {file.vector.layout} and {first.path} has {first.vector.layout}: encrypt both with "
                "the same clip, bits, summands and length."
            )


def _name_the_forged(read: Sequence[EncryptedFile]) -> None:
    for file in read:
        try:
            file.vector.check_units()
        except CipherError as error:
            raise CipherError(f"{file.path}: {error}") from error


def _repeated(read: Sequence[EncryptedFile]) -> list[tuple[Path, Path]]:
    seen: dict[bytes, Path] = {}
    pairs = []
    for file in read:
        if file.digest in seen:
            pairs.append((seen[file.digest], file.path))
        seen.setdefault(file.digest, file.path)
    return pairs
