"""Settings as other frameworks write them, in ours, and in full where they are written in short.

MindSpore Federated switches SignDS on in its YAML with ``encrypt: {encrypt_train_type: SIGNDS, signds: {...}}``, and
FederatedScope switches NbAFL on with ``nbafl.use True``. Both are understood as they stand; FederatedScope's other keys
are in :mod:`tacit.config.federatedscope`. A section that has a name may be given by its name alone: ``data: digits``,
``model: cnn``, ``optimizer: adam``, ``server: fedadam``. ``dp: {noise: banded}`` names the kind of noise, and leaves
its size to epsilon.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.errors import ConfigError

_TYPES = {"SIGNDS": "signds", "NOT_ENCRYPT": "plain"}
_BLOCKS = ("signds", "pw_encrypt", "dp_encrypt")  # also of methods that were not chosen: MindSpore's files have all
_CORRELATED = ("banded", "toeplitz", "blt")
_NAMED = ("data", "model", "optimizer", "server")  # sections whose first key is a name


def in_full(section: str, value: Any) -> Any:
    """Return the value of a section, in full where it is a name alone.

    >>> in_full("data", "digits"), in_full("seed", 1), in_full("dp", {"noise": "banded", "epsilon": 4})
    ({'name': 'digits'}, 1, {'epsilon': 4, 'correlation': 'banded'})
    """
    if section == "dp" and isinstance(value, Mapping) and "correlation" not in value:
        noise = value.get("noise")
        if isinstance(noise, str) and noise.lower() in _CORRELATED:
            return {key: inner for key, inner in value.items() if key != "noise"} | {"correlation": noise.lower()}
    return {"name": value} if section in _NAMED and isinstance(value, str) else value


def translated(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings with MindSpore's and FederatedScope's switches turned into a mode.

    >>> translated({"encrypt": {"encrypt_train_type": "SIGNDS", "signds": {"sign_k": 0.2}}})
    {'mode': 'signds', 'signds': {'sign_k': 0.2}}
    """
    settings = {key: in_full(key, value) for key, value in values.items()}
    if "encrypt" in settings:
        settings = _from_mindspore(settings)
    nbafl = settings.get("nbafl")
    if isinstance(nbafl, Mapping) and "use" in nbafl:
        settings["nbafl"] = {key: value for key, value in nbafl.items() if key != "use"}
        if nbafl["use"] is True:
            _choose(settings, "nbafl", "nbafl.use=true")
            settings["nbafl"].setdefault("compat", "federatedscope")
        elif nbafl["use"] not in (False, None):
            raise ConfigError(f"nbafl.use={nbafl['use']!r} does not work: expected true or false.")
    return settings


def _from_mindspore(settings: dict[str, Any]) -> dict[str, Any]:
    block = settings.pop("encrypt")
    if not isinstance(block, Mapping):
        raise ConfigError(f"Expected encrypt: {{encrypt_train_type: SIGNDS, signds: {{...}}}}, got encrypt={block!r}.")
    key = "encrypt_type" if "encrypt_type" in block else "encrypt_train_type"
    kind = str(block.get(key, "NOT_ENCRYPT")).upper()
    if kind not in _TYPES:
        raise ConfigError(
            f"encrypt.{key}={block[key]} is not understood. Known of MindSpore's: {', '.join(_TYPES)}. For noise on "
            "updates use --mode local-dp, for encrypted sums --mode paillier."
        )
    unknown = [name for name in block if name not in (key, *_BLOCKS)]
    if unknown:
        raise ConfigError(f"Unknown key 'encrypt.{unknown[0]}'. Expected {key} and signds.")
    _choose(settings, _TYPES[kind], f"encrypt.{key}={kind}")
    if kind == "SIGNDS":
        given = block.get("signds") or {}
        ours = settings.get("signds") or {}
        if not isinstance(given, Mapping) or not isinstance(ours, Mapping):
            raise ConfigError(f"Expected encrypt.signds to be a section such as {{sign_k: 0.2}}, got {given!r}.")
        settings["signds"] = {**given, **ours}
    return settings


def _choose(settings: dict[str, Any], mode: str, why: str) -> None:
    given = settings.setdefault("mode", mode)
    if str(given).lower() != mode:
        raise ConfigError(f"{why} chooses mode {mode!r}, and mode={given} another one. Leave one of them out.")
