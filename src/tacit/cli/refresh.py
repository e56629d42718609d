"""``tacit keys refresh``: holders of a threshold key make their shares fresh, without anybody seeing the secret."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import passphrases
from tacit.cli.keyoptions import fingerprint_lines, spoken_warnings
from tacit.errors import KeysError, StorageError

if TYPE_CHECKING:
    from tacit.crypto.keyfile import KeyFile
    from tacit.crypto.threshold import KeyShare, ThresholdPublic
    from tacit.crypto.threshold.refresh import Contribution

app = typer.Typer(help="Make the shares of a threshold key fresh.", no_args_is_help=True)

FORMAT = "tacit refresh"
_LARGEST = 1 << 20
_VERSION = 2


@app.command("start")
def start(
    share: Annotated[Path, typer.Argument(help="Your share, which signs.", metavar="SHARE")],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the new files.", metavar="FOLDER")] = Path("refresh"),
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
) -> None:
    """Make your contribution: a file for each holder, which is a secret between you and that holder.

    At least as many holders have to contribute as decrypt together. Each signs with its share, so that nobody
    contributes in another's name.

    Examples:
      tacit keys refresh start share-1.key --out ours/
    """
    import json

    from tacit.crypto.threshold.refresh import contribute
    from tacit.storage import write_atomically

    file = _read(share)
    public = _threshold(file, share)
    paths = [out / f"for-{index}.refresh" for index in range(1, public.shares + 1)]
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} is there already, and nothing is overwritten. Choose another --out.")
    given = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    parts = contribute(_unlocked(file, share, given))
    for path, part in zip(paths, parts, strict=True):
        text = json.dumps({"format": FORMAT, "version": _VERSION, **part.to_dict()}, indent=2) + "\n"
        write_atomically(path, text.encode(), mode=0o600, replace=False, advice="Choose another --out.")
    typer.echo(
        f"Wrote {paths[0]} … {paths[-1].name}, one for each holder (yours too). Send each over a channel that hides "
        f"it, and erase it here. Contribution {parts[0].digest.hex()[:16]}."
    )


@app.command("finish")
def finish(
    share: Annotated[Path, typer.Argument(help="Your old share.", metavar="SHARE")],
    contributions: Annotated[
        list[Path], typer.Argument(help="What each contributing holder made for you, your own too.", metavar="FILE...")
    ],
    *,
    out: Annotated[Path, typer.Option(help="Folder of the new files.", metavar="FOLDER")] = Path("fresh"),
    passphrase: Annotated[
        bool, typer.Option("--passphrase", help="Ask for the new share's passphrase, twice.")
    ] = False,
    new_passphrase_file: Annotated[
        Path | None, typer.Option(help="Read the new share's passphrase from the first line of this file.")
    ] = None,
    passphrase_file: passphrases.PassphraseFile = None,
    passphrase_fd: passphrases.PassphraseDescriptor = None,
    passphrase_command: passphrases.PassphraseCommand = None,
) -> None:
    """Add the contributions to your share: a new share and a new public.key, under a passphrase of their own.

    All holders take the contributions of the same senders. Compare the new fingerprint with all of them, put the new
    share in use, then erase the old one and the contributions.

    Examples:
      tacit keys refresh finish share-1.key ours/for-1.refresh two/for-1.refresh three/for-1.refresh --out new/
    """
    from tacit.cli import newkeys
    from tacit.crypto.threshold.refresh import refreshed

    file = _read(share)
    public = _threshold(file, share)
    given = [_contribution(path, public) for path in contributions]
    paths = [out / "public.key", out / f"share-{file.share}.key"]
    for path in paths:
        if path.exists():
            raise StorageError(f"{path} is there already, and keys are never overwritten. Choose another --out.")
    old = passphrases.Source(file=passphrase_file, descriptor=passphrase_fd, command=passphrase_command)
    fresh = refreshed(_unlocked(file, share, old), given)
    if file.sealed and not passphrase and new_passphrase_file is None:
        raise KeysError("The old share is sealed: give the new one words of its own, with --passphrase or a file.")
    words: list[str | None] = [None]
    if passphrase or new_passphrase_file is not None:
        words = passphrases.for_new_keys(paths[1:], passphrases.Source(file=new_passphrase_file), prompt=passphrase)
    newkeys.check_passphrases(words)
    newkeys.write(paths, [fresh.public, fresh], words)
    typer.echo(f"Wrote {paths[0]} and {paths[1]}. Compare the new fingerprint with all holders, then erase {share}:")
    typer.echo(fingerprint_lines(fresh.public.fingerprint))


def _read(path: Path) -> KeyFile:
    from tacit.crypto import keyfile

    with spoken_warnings():
        return keyfile.read(path, insecure_key_size=True)


def _threshold(file: KeyFile, path: Path) -> ThresholdPublic:
    from tacit.crypto.threshold import ThresholdPublic

    if not isinstance(file.public, ThresholdPublic):
        raise KeysError(f"{path} holds {file.title}, expected a threshold key or a share of one.")
    return file.public


def _unlocked(file: KeyFile, path: Path, source: passphrases.Source) -> KeyShare:
    from tacit.crypto.threshold import KeyShare

    if file.kind.role == "public":
        raise KeysError(f"{path} holds {file.title}, expected a share: whoever contributes signs with it.")
    secret = file.unlock(passphrases.for_loading(source, [path]))
    assert isinstance(secret, KeyShare), "checked by its kind"
    return secret


def _contribution(path: Path, public: ThresholdPublic) -> Contribution:
    from tacit import foreign
    from tacit.crypto.threshold.refresh import Contribution
    from tacit.errors import WireError

    try:
        plain = foreign.json_object(foreign.read_plain(path, largest=_LARGEST), largest=_LARGEST)
    except (OSError, WireError) as error:
        raise KeysError(f"Can't read the contribution {path}: {error}") from error
    if (plain.get("format"), plain.get("version")) != (FORMAT, _VERSION):
        raise KeysError(f"{path} is no contribution. Give a file that this version's `tacit keys refresh start` wrote.")
    try:
        return Contribution.from_dict(plain, public)
    except KeysError as error:
        raise KeysError(f"{path}: {error}") from error
