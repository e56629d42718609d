"""What a mode is: one value that answers every question the rest of Tacit asks about a protection.

To add a mode, write a file that makes a :class:`Mode` and name it in :data:`tacit.modes.catalogue.MODES`. Runs,
reports, studies and Flower ask this value, and never compare a mode's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tacit.config.resolved import Resolved
from tacit.config.run_config import RunConfig
from tacit.federated.plan import Plan

Settings = Mapping[str, Any]  # nested, as a job file has them


def _as_it_is(config: Resolved, plan: Plan, sizes: Sequence[int]) -> tuple[Resolved, Plan]:  # noqa: ARG001 - the default of a field that others fill with more
    return config, plan


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A protection: how its rounds are planned, which settings it knows, and what may be said of it.

    >>> from tacit.modes.plain import PLAIN
    >>> from dataclasses import replace
    >>> replace(PLAIN, name="mine").noisy(RunConfig())
    False

    Attributes:
        name: what ``--mode`` takes.
        summary: one line for help texts.
        plan: joins a mechanism and a protocol for so many clients.
        section: its own section of the configuration, if it has one.
        dp: the keys of the section dp that mean something to it, while it adds noise.
        advice: what to do about a setting that means nothing to it.
        adds_noise: whether it hides something by noise, so that the server had better not move further than the mean.
        noise_if: the key that turns its noise on, where that is a choice.
        budget: the sections one of which must give a noise or an epsilon, the first before the second.
        epsilon_from: the settings that epsilon follows from, where no budget sets it.
        promise: what its settings promise of the noise, where that is not a budget.
        examples: whether clients may, or must, train with DP-SGD, which protects single examples.
        encrypted: whether clients encrypt what they send; the section paillier then says with which keys.
        hidden: in a word, how a client's update is hidden from the server, which learns sums alone; empty elsewhere.
        central: whether the server adds the noise. It is then complete without the clients: every round is released,
            however many reply, and whom a round asks decides what is hidden.
        defaults: settings that suit it, by dotted keys, where others were not given.
        images: by data set, settings under which it learns on images, where neither a model nor features were chosen.
        batch_size: the key that says how many examples a step has.
        grad_clip: the largest gradient of a step with which clients can train under its noise, where they need one.
        fitted: returns configuration and plan for clients who hold so many examples each.
        notes: what people should know of its settings.
        warnings: what they should know of its plan for a model of so many parameters.
        refuse_apart: refuses what would be read off everybody's data, for parties that do not share a machine.
        by_examples: whether a client's number of examples sets its noise.
        replayed: settings, by dotted keys, with which an audit plays its rounds faster, and what they release stays the
            same.
    """

    name: str
    summary: str
    plan: Callable[[Resolved, int], Plan]
    section: str | None = None
    dp: frozenset[str] = frozenset()
    advice: str = "Remove it."
    adds_noise: bool = False
    noise_if: str | None = None
    budget: tuple[str, ...] = ()
    epsilon_from: str | None = None
    promise: Callable[[RunConfig], str] | None = None
    examples: Literal["never", "optional", "always"] = "never"
    encrypted: bool = False
    hidden: str = ""
    central: bool = False
    defaults: Callable[[RunConfig], Mapping[str, Any]] = lambda _: {}
    images: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    batch_size: str = "train.batch_size"
    grad_clip: float | None = None
    fitted: Callable[[Resolved, Plan, Sequence[int]], tuple[Resolved, Plan]] = _as_it_is
    notes: Callable[[RunConfig], tuple[str, ...]] = lambda _: ()
    warnings: Callable[[Plan, int], tuple[str, ...]] = lambda *_: ()
    refuse_apart: Callable[[RunConfig], None] = lambda _: None
    by_examples: Callable[[RunConfig], bool] = lambda _: False
    replayed: Mapping[str, Any] = field(default_factory=dict)

    def noisy(self, settings: Settings | RunConfig) -> bool:
        """Return whether it adds noise under these settings."""
        return self.adds_noise and (self.noise_if is None or bool(_value(settings, self.noise_if)))

    def private(self, settings: Settings | RunConfig) -> bool:
        """Return whether noise protects clients or examples under these settings."""
        return self.noisy(settings) or self.examples == "always"

    def known_dp(self, settings: Settings | RunConfig) -> frozenset[str]:
        """Return the keys of the section dp that mean something under these settings."""
        return self.dp if self.noisy(settings) else frozenset()

    def lacks_budget(self, settings: Settings | RunConfig) -> bool:
        """Return whether it needs a noise or a budget that these settings do not have."""
        if not self.budget or not self.noisy(settings):
            return False
        keys = (f"{section}.{key}" for section in self.budget for key in ("noise", "epsilon"))
        return all(_value(settings, key) is None for key in keys)

    def budgeted(self, config: RunConfig) -> bool:
        """Return whether the noise is found from an epsilon, which one release per round then spends."""
        return self.noisy(config) and any(_value(config, f"{name}.epsilon") is not None for name in self.budget)

    def weighs(self, config: RunConfig) -> bool:
        """Return whether a client's number of examples has a part in what it sends."""
        if self.noisy(config):
            return config.dp.weight_cap is not None or self.by_examples(config)
        return config.federate.weighting != "uniform"

    def promised_noise(self, config: RunConfig) -> str:
        """Return what the settings promise of the noise, for the log of a node's operator."""
        if not self.noisy(config):
            return "no noise"
        if self.promise is not None:
            return self.promise(config)
        noise, epsilon, delta = (
            next((value for section in self.budget if (value := _value(config, f"{section}.{key}")) is not None), None)
            for key in ("noise", "epsilon", "delta")
        )
        said = [] if noise is None else [f"noise multiplier {noise:g}"]
        said += [] if epsilon is None else [f"epsilon {epsilon:g} at delta {delta:g}"]
        return ", ".join(said) or "noise that is not stated"


def _value(settings: Settings | RunConfig, key: str) -> Any:
    section, _, name = key.partition(".")
    if isinstance(settings, RunConfig):
        return getattr(getattr(settings, section), name)
    return (settings.get(section) or {}).get(name)
