"""``tacit decrypt``: opens a sum with the private key, or with enough shares of a threshold key."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli import arrays, passphrases
from tacit.cli.keyoptions import Force, InsecureKeySize, Output, mark_insecure, plural, spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.crypto.cipherfile import EncryptedFile
    from tacit.crypto.keyfile import KeyFile, Private, Share

Encrypted = Annotated[Path, typer.Argument(help="A file that `tacit sum` or `tacit encrypt` wrote.", metavar="SUM.tct")]


def decrypt(
    encrypted: Encrypted,
    *,
    key: Annotated[
        list[Path],
        typer.Option(help="The private key; or a share, given once for each share you hold.", metavar="FILE"),
    ],
    output: Output,
    partial: Annotated[
        bool, typer.Option("--partial", help="With one share: write its part of the decryption, for tacit combine.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="With --partial: add a proof that the part was made with the share.")
    ] = False,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
    insecure_key_size: InsecureKeySize = False,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Decrypt a vector or a sum of vectors into an .npy file.

    Decrypt sums of many, never a single vector because somebody asks.

    Examples:
      tacit decrypt --key keys/private.key sum.tct -o sum.npy
      tacit decrypt --key share-1.key --key share-3.key --key share-5.key sum.tct -o sum.npy
      tacit decrypt --key share-1.key --partial --prove sum.tct -o 1.part
    """
    arrays.check_output(output, force=force)
    from tacit.crypto import cipherfile, keyfile

    with spoken_warnings():
        files = [keyfile.read(path, insecure_key_size=insecure_key_size) for path in key]
    _check_keys(files, partial=partial, prove=prove)
    source = cipherfile.read(encrypted, expected=files[0].public, insecure_key_size=insecure_key_size)
    words = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    find = passphrases.for_loading(words, [file.path for file in files if file.sealed])
    secrets = [file.unlock(find) for file in files]
    if partial:
        _write_partial(source, secrets[0], output, prove=prove, force=force, as_json=as_json)
        return
    finish(source, _open(source, secrets), output, force=force, as_json=as_json)


def finish(
    source: EncryptedFile,
    numbers: NDArray[Any],
    output: Path,
    *,
    force: bool,
    as_json: bool,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write decrypted numbers and say what they are."""
    arrays.write_output(output, arrays.npy_bytes(numbers), force=force)
    vector, layout = source.vector, source.vector.layout
    mark_insecure(vector.key)
    if as_json:
        emit_json(
            {
                "output": str(output),
                "vectors": vector.summands,
                "numbers": layout.length,
                "type": "integers" if layout.step is None else "floats",
                "largest_error": layout.error(vector.summands),
                "fingerprint": source.public.fingerprint,
                "insecure": vector.key.insecure,
                **(extra or {}),
            }
        )
        return
    error = layout.error(vector.summands)
    out = console()
    out.print(
        f"{output}: the sum of {plural(vector.summands, 'vector')} of {plural(layout.length, 'number')}, "
        + (f"within {error:.2g} of the exact sum of what was clipped" if error else "exact"),
        markup=False,
    )
    if vector.summands == 1:
        out.print("  one vector alone: nothing hides it from whoever reads this file", style="yellow", markup=False)


def _check_keys(files: Sequence[KeyFile], *, partial: bool, prove: bool) -> None:
    """Refuse keys that don't decrypt together, before anything else is read."""
    from tacit.crypto.keyfile import wrong_role
    from tacit.crypto.threshold import ThresholdPublic

    roles = {file.kind.role for file in files}
    for file in files:
        if file.kind.role == "public":
            raise wrong_role(file, "share" if partial else "private")
    if (roles == {"private"} and len(files) > 1) or len(roles) > 1:
        held = ", ".join(f"{file.path} ({file.title})" for file in files)
        raise ConfigError(f"Expected one private key, or shares of one threshold key, got {held}.")
    if partial and (roles != {"share"} or len(files) > 1):
        raise ConfigError(
            f"--partial goes with one share of a threshold key, got {plural(len(files), 'key')}: {files[0].title}."
        )
    if prove and not partial:
        raise ConfigError("--prove goes with --partial: whoever decrypts alone needs no proof. Leave it out.")
    public = files[0].public
    if isinstance(public, ThresholdPublic) and not partial and len(files) < public.threshold:
        raise ConfigError(
            f"Got {plural(len(files), 'share')}, expected {public.threshold} of {public.shares}. Give more with --key, "
            "or write this one's part with --partial and let `tacit combine` join it with the others'."
        )
    for file in files[1:]:
        if file.public != files[0].public:
            raise ConfigError(f"{file.path} and {files[0].path} are shares of different keys. Give shares of one key.")


def _open(source: EncryptedFile, secrets: Sequence[Private | Share]) -> NDArray[Any]:
    from tacit.crypto import paillier, threshold

    first = secrets[0]
    if isinstance(first, paillier.PrivateKey):
        return first.decrypt(source.vector)
    shares = [secret for secret in secrets if isinstance(secret, threshold.KeyShare)]
    public = shares[0].public
    return public.combine(source.vector, [share.partial(source.vector) for share in shares]).value


def _write_partial(
    source: EncryptedFile, share: Private | Share, output: Path, *, prove: bool, force: bool, as_json: bool
) -> None:
    from tacit.crypto import cipherfile, threshold

    assert isinstance(share, threshold.KeyShare)
    part = share.partial(source.vector, prove=prove)
    arrays.write_output(output, cipherfile.pack_partial(share.public, part), force=force)
    mark_insecure(source.vector.key)
    if as_json:
        emit_json(
            {
                "output": str(output),
                "share": share.index,
                "proved": prove,
                "vectors": source.vector.summands,
                "fingerprint": share.public.fingerprint,
                "insecure": source.vector.key.insecure,
            }
        )
        return
    console().print(
        f"{output}: share {share.index}'s part of decrypting {source.path}, the sum of "
        f"{plural(source.vector.summands, 'vector')}{', with a proof' if prove else ''}\n"
        f"  {share.public.threshold} such parts open it: tacit combine {source.path} *.part -o sum.npy",
        markup=False,
    )
