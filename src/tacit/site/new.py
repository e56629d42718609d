"""A new site: a folder with its contract and an empty ledger; nothing is shared yet."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.errors import RunError
from tacit.modes.catalogue import MODES
from tacit.site import data as datas
from tacit.site.contract import CONTRACT, LEDGER, Contract, made, placed
from tacit.site.ledger import Ledger
from tacit.storage import make_folder, write_atomically
from tacit.tasks.tables import is_file

_ADVICE = "Choose another folder."


def self_protecting() -> tuple[str, ...]:
    """Return the modes whose noise is the site's own: what a contract allows until its owner says more."""
    return tuple(mode.name for mode in MODES.values() if mode.adds_noise and not mode.central)


def init(folder: Path, source: str, values: Mapping[str, Any]) -> Contract:
    """Make a site's folder and return its contract as it is read from there.

    Args:
        folder: new, or empty.
        source: the data: a CSV file, or the name of a public data set.
        values: the contract, as far as it is not as usual; its name has to be there.
    """
    if folder.exists() and any(folder.iterdir()):
        raise RunError(f"{folder} is there already and is left as it was: a ledger is for life. {_ADVICE}")
    section: dict[str, Any] = {"name": Path(source).name if is_file(source) else source, **values.get("data", {})}
    if is_file(source) and not section.get("dealt"):
        section["file"] = str(Path(source).absolute())
    if section.get("columns"):
        section["columns"] = str(Path(str(section["columns"])).absolute())
    allowed = {"modes": self_protecting(), **values.get("rules", {})}
    contract = made({**values, "data": section, "rules": allowed}, where="A new site")
    datas.load(contract.data)  # what is wrong with them shows now
    contract = contract.model_copy(
        update={"data": contract.data.model_copy(update={"sha256": datas.digest(contract.data)})}
    )
    make_folder(folder, mode=0o700, advice=_ADVICE)
    folder.chmod(0o700)
    write_atomically(folder / CONTRACT, contract.to_yaml().encode(), mode=0o600, replace=False, advice=_ADVICE)
    contract = placed(contract, folder)
    Ledger.create(folder / LEDGER, contract)
    return contract
