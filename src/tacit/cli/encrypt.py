"""``tacit encrypt``: a vector of numbers into a file that only the key's holder opens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from tacit import limits
from tacit.cli import arrays, passphrases
from tacit.cli.keyoptions import Force, InsecureKeySize, Output, mark_insecure, plural, spoken_warnings
from tacit.cli.output import JsonFlag, console, emit_json
from tacit.errors import ConfigError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tacit.crypto.paillier import CiphertextVector, PrivateKey, PublicKey
    from tacit.crypto.paillier.vector import Beyond, Layout

_DEFAULT_BITS, _DEFAULT_CLIP = 24, 1.0


def encrypt(
    vector: Annotated[Path, typer.Argument(help="An .npy file of floats or integers.", metavar="VECTOR.npy")],
    *,
    key: Annotated[Path, typer.Option(help="The public key; its private key encrypts faster.", metavar="FILE")],
    output: Output,
    clip: Annotated[
        float | None, typer.Option(help="Largest magnitude of a number.", show_default="1.0; 2^31 for integers")
    ] = None,
    bits: Annotated[int | None, typer.Option(help="Bits a float is written with.", show_default="24")] = None,
    summands: Annotated[int, typer.Option(min=1, max=limits.CLIENTS, help="How many such vectors may be added.")] = 128,
    beyond: Annotated[
        str | None,
        typer.Option(help="Numbers beyond the clip: clip or refuse.", show_default="clip; refuse for integers"),
    ] = None,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
    insecure_key_size: InsecureKeySize = False,
    force: Force = False,
    as_json: JsonFlag = False,
) -> None:
    """Encrypt a vector with Paillier, many numbers to a ciphertext.

    All who want to add their vectors use the same key, clip, bits and summands.

    Examples:
      tacit encrypt --key keys/public.key update.npy -o update.tct
      tacit encrypt --key keys/public.key counts.npy -o counts.tct --clip 1000 --summands 1024
    """
    arrays.check_output(output, force=force)
    if beyond not in (None, "clip", "refuse"):
        raise ConfigError(f"Expected --beyond clip or refuse, got {beyond!r}.")
    from tacit.crypto import cipherfile, keyfile
    from tacit.crypto.keyfile import paillier_key
    from tacit.crypto.paillier import PrivateKey

    with spoken_warnings():
        file = keyfile.read(key, insecure_key_size=insecure_key_size)
    public = paillier_key(file.public)
    numbers, shape = arrays.read_vector(vector)
    layout = _layout(public, numbers, clip=clip, bits=bits, summands=summands)
    words = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    secret = file.unlock(passphrases.for_loading(words, [file.path])) if file.kind.role == "private" else None
    holder: PublicKey | PrivateKey = secret if isinstance(secret, PrivateKey) else public
    encrypted = holder.encrypt(numbers, layout, beyond=cast("Beyond | None", beyond))
    arrays.write_output(output, data := cipherfile.pack(file.public, encrypted), force=force)
    mark_insecure(public)
    if as_json:
        emit_json({**_plain(output, encrypted, len(data), shape), "fingerprint": file.public.fingerprint})
        return
    _show(output, encrypted, len(data), shape)
    console().print(f"  key {file.public.fingerprint[:23]}…", markup=False)


def _layout(public: PublicKey, numbers: NDArray[Any], *, clip: float | None, bits: int | None, summands: int) -> Layout:
    """Return the layout that was asked for; integers are exact, and their clip is a whole number."""
    import numpy as np

    from tacit.crypto.paillier import Layout

    if np.issubdtype(numbers.dtype, np.floating):
        return Layout.floats(
            length=len(numbers),
            clip=_DEFAULT_CLIP if clip is None else clip,
            bits=_DEFAULT_BITS if bits is None else bits,
            summands=summands,
            key_bits=public.bits,
        )
    if bits is not None:
        raise ConfigError("--bits is for floats; integers are kept exactly. Bound them with --clip.")
    if clip is not None and (not clip.is_integer() or clip < 1):
        raise ConfigError(f"Expected --clip for integers to be a whole number of at least 1, got {clip:g}.")
    bound = 1 << 31 if clip is None else int(clip)
    return Layout(length=len(numbers), bound=bound, summands=summands, key_bits=public.bits)


def _plain(output: Path, encrypted: CiphertextVector, size: int, shape: tuple[int, ...]) -> dict[str, Any]:
    layout = encrypted.layout
    return {
        "output": str(output),
        "numbers": layout.length,
        "shape": list(shape),
        "flattened": len(shape) != 1,
        "type": "integers" if layout.step is None else "floats",
        "clip": layout.clip if layout.step is not None else layout.bound,
        "clipped": encrypted.clipped,
        "largest_error": layout.error(1),
        "summands": layout.summands,
        "ciphertexts": layout.rows,
        "bytes": size,
        "insecure": encrypted.key.insecure,
    }


def _show(output: Path, encrypted: CiphertextVector, size: int, shape: tuple[int, ...]) -> None:
    from tacit.report.words import bytes_text

    out, layout = console(), encrypted.layout
    kind = "integer" if layout.step is None else "float"
    out.print(
        f"{output}: {plural(layout.length, kind)} in {plural(layout.rows, 'ciphertext')}, {bytes_text(size)} "
        f"({size / layout.length:.1f} bytes per number)",
        markup=False,
    )
    if len(shape) != 1:
        out.print(f"  the array of shape {shape} was flattened; the shape does not travel", markup=False)
    if encrypted.clipped:
        out.print(
            f"  clipped {encrypted.clipped:,} of {layout.length:,} numbers to ±{layout.clip:g}; --beyond refuse "
            "would have refused them",
            markup=False,
            style="yellow",
        )
    else:
        out.print(f"  nothing was beyond the clip of ±{layout.clip:g}", markup=False)
    exact = "exact" if layout.step is None else f"each number within {layout.error(1):.2g}"
    out.print(f"  {exact}; up to {layout.summands:,} such vectors can be added", markup=False)
