"""The modes there are, and the way from a configuration to a plan.

>>> from tacit.config.run_config import RunConfig
>>> plan_of(resolve(RunConfig(mode="dp", dp={"noise": 1.0})), 10).claim.unit
'client'
"""

from __future__ import annotations

import difflib
from importlib.metadata import EntryPoint, entry_points

from tacit.config.resolved import Resolved, fill
from tacit.config.run_config import RunConfig
from tacit.config.sections import Section
from tacit.errors import ConfigError
from tacit.federated.plan import Plan
from tacit.mechanisms.gaussian import GaussianMechanism
from tacit.modes.dp import DP
from tacit.modes.dp_sgd import DP_SGD, with_examples
from tacit.modes.local_dp import LOCAL_DP
from tacit.modes.masks import MASKS
from tacit.modes.mode import Mode
from tacit.modes.nbafl import NBAFL
from tacit.modes.paillier import PAILLIER
from tacit.modes.plain import PLAIN
from tacit.modes.signds import SIGNDS

GROUP = "tacit.modes"  # the entry points of other packages
_FEWEST_CANARIES = 100
MODES: dict[str, Mode] = {
    mode.name: mode
    for mode in (
        PLAIN,
        DP,
        LOCAL_DP,
        DP_SGD,
        PAILLIER,
        MASKS,
        SIGNDS,
        NBAFL,
    )
}


def register(mode: Mode) -> None:
    """Make a mode of your own known in this process, under its name, as if it had come with Tacit.

    For the command line and for other processes, such as the workers of a study, name it as an entry point of the
    group ``tacit.modes`` in the package that has it.
    """
    if mode.name != mode.name.lower():
        raise ConfigError(f"Expected a mode's name in lower case, got {mode.name!r}.")
    if mode.name in MODES:
        raise ConfigError(f"There is a mode {mode.name!r} already. Choose another name.")
    MODES[mode.name] = mode


def mode_of(name: str) -> Mode:
    """Return the mode of this name, or refuse one that does not exist."""
    if name not in MODES:
        others = {point.name: point for point in entry_points(group=GROUP)}
        if name not in others:
            known = list(dict.fromkeys((*MODES, *others)))
            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"Unknown mode {name!r}.{hint} Modes of this version: {', '.join(known)}.")
        register(_loaded(others[name]))
    return MODES[name]


def _loaded(point: EntryPoint) -> Mode:
    """Return the mode that another package has."""
    try:
        mode = point.load()
    except Exception as error:  # whatever that package does
        raise ConfigError(f"The mode {point.name!r} can't be loaded from {point.value}: {error}") from error
    if not isinstance(mode, Mode) or mode.name != point.name:
        raise ConfigError(f"Expected {point.value} to be a Mode whose name is {point.name!r}, got {mode!r:.80}.")
    return mode


def resolve(config: RunConfig) -> Resolved:
    """Fill in every default that depends on other settings; a run does so once, where it begins."""
    mode = mode_of(config.mode)
    return fill(config, suits=mode.defaults(config), noisy=mode.noisy(config))


def plan_of(config: Resolved, clients: int) -> Plan:
    """Return the plan of the configuration's mode for a federation of ``clients``.

    Noise is calibrated here, which may take seconds: a run plans once.
    """
    mode = mode_of(config.mode)
    _refuse_unused(config, mode)
    plan = with_examples(mode.plan(config, clients), config, mode)
    _refuse_canaries(config, mode, plan)
    return plan


def _refuse_unused(config: Resolved, mode: Mode) -> None:
    """Refuse settings that do nothing in the mode, so that nobody believes in a protection that is not there."""
    known = mode.known_dp(config)
    unused = [f"dp.{key}" for key in _given(config.dp) if key not in known]
    if unused:
        raise ConfigError(f"{', '.join(unused)} has no effect in mode {mode.name!r}. {mode.advice}")
    for owner in MODES.values():  # what the section dpsgd does, with_examples looks at
        if owner.section in (None, mode.section) or owner.examples != "never":
            continue
        if given := _given(getattr(config, owner.section)):
            keys = ", ".join(f"{owner.section}.{key}" for key in given)
            raise ConfigError(f"{keys} has no effect in mode {mode.name!r}. Remove it, or add --mode {owner.name}.")


def _refuse_canaries(config: Resolved, mode: Mode, plan: Plan) -> None:
    """Refuse canaries where their scores would not mean what is said of them."""
    if config.audit.canaries is None:
        return
    if config.single_holder and config.audit.canaries >= _FEWEST_CANARIES:
        return  # one whose steps are looked at, all with the same noise
    mechanism, claim = plan.mechanism, plan.claim
    why = ""
    if config.audit.canaries < _FEWEST_CANARIES:
        why = f"fewer than {_FEWEST_CANARIES} show nothing"
    elif not mode.central or not isinstance(mechanism, GaussianMechanism) or claim is None:
        why = "they are for Gaussian noise that the server of mode dp adds, new in every round, and `tacit train`"
    elif mechanism.adaptive is not None or mechanism.per_layer or mechanism.denoise != "none":
        why = "they are for one fixed clip of the whole update, and releases that are not denoised"
    elif mechanism.noise_multiplier == 0.0:
        why = "without noise there is no claim to hold them against"
    elif claim.by_participation or (claim.rate < 1.0 and claim.sampling != "poisson"):
        why = "they are for rounds that everyone is in, or that Poisson sampling draws"
    if why:
        raise ConfigError(
            f"audit.canaries={config.audit.canaries} does not work in mode {mode.name!r} with these settings: {why}. "
            "Leave it out, and attack the run by `tacit audit` once it is there."
        )


def _given(section: Section) -> list[str]:
    """Return the keys of a section that have another value than their default."""
    return [key for key, value in section if value != getattr(type(section)(), key)]
