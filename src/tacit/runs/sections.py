"""The sections of a configuration: every setting, its default, its domain and what it means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

PositiveInt = Annotated[int, Field(ge=1)]
Probability = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Lower = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def _within(low: float, high: float, *, closed: bool = False) -> AfterValidator:
    """Return the check that a number is in (low, high], or in [low, high]; the error names the whole domain."""

    def check(value: float) -> float:
        if not (low <= value if closed else low < value) or not value <= high:
            raise ValueError(f"expected a number in {'[' if closed else '('}{low:g}, {high:g}]")
        return value

    return AfterValidator(check)


class Section(BaseModel):
    """A part of the configuration; its docstring and comments are the reference."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, use_attribute_docstrings=True)


class Data(Section):
    """Which examples, and who holds them."""

    name: str = "mnist"
    """Data set: see `tacit data list`."""
    folder: Path | None = None
    """Where to look first for files."""
    split_seed: Annotated[int, Field(ge=0)] | None = None
    """Fixes the split alone, so that parties in several places split alike; by default the run's own randomness."""
    split: str | None = None
    """iid, dirichlet:ALPHA, shards:K, natural or power:A; by default natural where the data have owners."""
    download: bool = True
    """Whether missing files may be fetched."""


class Model(Section):
    """Which model."""

    name: str | None = None
    """cnn, tanh-cnn, tempered-cnn, lenet, mlp, logistic, or package.module:Class; by default what suits the data."""


class Federate(Section):
    """The federation."""

    clients: PositiveInt | None = None
    """How many clients there are: 10, or one for each owner with a natural split."""
    per_round: PositiveInt | None = None
    """How many take part in a round (the mean with Poisson sampling); all by default."""
    sampling: Literal["all", "fixed", "poisson"] | None = None
    """How they are drawn; fixed where per_round is given."""
    rounds: PositiveInt = 6
    """How many rounds; 20 by default in mode dp-sgd."""
    minimum_clients: PositiveInt | None = None
    """With fewer replies a round fails closed: half the cohort, at least two where there are two; none in mode dp."""
    drop: Probability = 0.0
    """Simulated drop-outs: the probability that a client of the cohort never answers."""
    retries: Annotated[int, Field(ge=0)] = 2
    """How often a round with too few replies is tried again, with a new cohort."""
    weighting: Literal["examples", "uniform"] | None = None
    """Whether a client counts by its examples or as one; by its examples where no privacy is claimed."""


class Train(Section):
    """Local training."""

    local_epochs: PositiveInt = 1
    """Passes over a client's data in a round."""
    batch_size: PositiveInt = 16
    """Examples a step."""
    form: Literal["auto", "lanes", "grouped", "vmap", "loop"] = "auto"
    """How a cohort is computed; see docs/architecture.md."""
    workers: PositiveInt | None = None
    """Threads that train; one a core by default."""


class Optimizer(Section):
    """The clients' SGD."""

    lr: Positive = 0.05
    """Learning rate; in mode dp-sgd it is epsilon by default, at most 4, and 0.5 where no epsilon is given."""
    momentum: Probability = 0.5
    """Momentum, as in torch.optim.SGD."""
    weight_decay: NotNegative = 0.0
    """L2 penalty."""
    final: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Share of the rate that is left in the last round; it falls in a line. 1 keeps it constant."""
    decay: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The rate is multiplied by this after each round."""
    grad_clip: Positive | None = None
    """Largest L2 norm of a step's gradient (an optimiser's clip; it protects nobody)."""
    mu: NotNegative = 0.0
    """Weight of the proximal term (FedProx)."""


class Server(Section):
    """What the server does with the average."""

    name: Literal["fedavg", "fedavgm", "fedadam", "fedyogi"] = "fedavg"
    """FedAvg, FedAvgM, FedAdam or FedYogi."""
    lr: Positive | None = None
    """Server learning rate; 1 with fedavg is plain averaging. By default what suits the optimiser (1.5 for fedavg)."""
    momentum: Probability = 0.9
    """Momentum of FedAvgM, beta 1 of FedAdam and FedYogi."""
    beta2: Probability = 0.99
    """Beta 2 of FedAdam and FedYogi."""
    tau: Positive = 1e-3
    """Adaptivity of FedAdam and FedYogi."""


class Evaluate(Section):
    """When the server tests the model."""

    every: PositiveInt = 1
    """Test after every so many rounds, and after the last."""
    train: bool | None = None
    """Whether the accuracy on the training data is computed at the end; yes where no privacy is claimed."""


class Dp(Section):
    """Differential privacy, for the modes dp and local-dp."""

    clip: Positive | Literal["adaptive"] | None = None
    """C: the largest L2 norm of an update (`--C`), 0.5 by default; or adaptive (Andrew et al. 2021)."""
    noise: NotNegative | None = None
    """z: the noise multiplier (`--sigma`); the noise on the sum has standard deviation z C."""
    epsilon: Positive | None = None
    """The budget of the whole run; the noise is calibrated to it."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    """The probability epsilon may fail with; well below one over the number of clients."""
    max_epsilon: Positive | None = None
    """Stop before the round that would exceed this."""
    neighbours: Literal["add-remove", "replace-one", "zero-out"] | None = None
    """What epsilon hides: that a client is there, which of two it is (2C), or what it contributed, not its presence."""
    weight_cap: PositiveInt | None = None
    """Weight a client by min(examples / this, 1); without it all clients count the same."""
    denoise: Literal["none", "james-stein", "soft-threshold"] = "none"
    """Post-processing of the noisy average; costs no privacy."""
    per_layer: bool = False
    """Clip each of the model's G tensors to C / sqrt(G) instead of the whole update to C."""
    noise_split: Literal["even", "variance-minimal"] = "even"
    """Whether layers share the noise evenly or with the least total variance (needs per_layer)."""
    amplification: bool = True
    """Whether epsilon counts on nobody knowing a cohort; without it rounds cost more, and their true sizes are told."""
    mechanism: Literal["analytic", "classical", "dp-opt", "zhao-1", "zhao-2", "extended"] | None = None
    """How local-dp calibrates a message to its share of epsilon; by the whole run's exact cost if left out."""
    clip_start: Positive = 0.1
    """The first bound of adaptive clipping."""
    clip_quantile: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """The share of updates that adaptive clipping leaves whole."""
    clip_rate: Annotated[float, Field(gt=0, le=1)] = 0.2
    """How fast the adaptive bound moves."""


class DpSgd(Section):
    """DP-SGD: for the mode dp-sgd, for `tacit train`, and inside the clients of dp and local-dp."""

    noise: NotNegative | None = None
    """z of the examples: the noise on a batch's sum has standard deviation z C; in mode dp-sgd dp.noise will do."""
    epsilon: Positive | None = None
    """The examples' budget over the whole run; in mode dp-sgd dp.epsilon (`--epsilon`) will do."""
    delta: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Its delta, well below one over the number of examples; dp.delta if left out."""
    max_epsilon: Positive | None = None
    """Stop before the round that would bring a client's examples over this."""
    clip: Positive | None = None
    """C: the largest L2 norm of an example's gradient, 1 by default; in mode dp-sgd dp.clip (`--C`) will do."""
    clipping: Literal["flat", "per-layer", "automatic"] = "flat"
    """One bound for the whole gradient, C / sqrt(L) for each of L layers, or normalised (Bu et al. 2023)."""
    batch_size: PositiveInt | None = None
    """The mean size of a Poisson batch; 512, or all examples where a holder has fewer, if left out."""
    steps: PositiveInt | None = None
    """Steps of a client's round, or of the whole run alone (`--iterations`); train.local_epochs passes if left out."""
    micro_batch: PositiveInt | None = None
    """How many examples go through the model at once, to save memory."""
    budget_by: Literal["tight", "advanced-composition", "advanced-composition-exact"] = "tight"
    """How epsilon becomes noise: the least that will do, or the DP-SGD lab's method (two steps, or its exact root)."""


class Paillier(Section):
    """Encryption, for the mode paillier."""

    bits: Annotated[int, Field(ge=64, le=16384)] = 3072
    """The key's length: 3072 is 128 bits of security, 2048 is 112."""
    keys: Annotated[Literal["authority", "threshold", "shared"], Lower] = "authority"
    """Who has the private key: an authority apart from the server, several by shares, or all clients (legacy)."""
    shares: Annotated[str, Field(pattern=r"^[1-9][0-9]*/[1-9][0-9]*$")] = "2/3"
    """With keys=threshold: how many of how many key holders it takes to open a sum; more than half."""
    prove: bool = True
    """Whether key holders prove that their shares of a decryption are right; looked at where shares don't combine."""
    kind: Annotated[Literal["standard", "subgroup"], Lower] = "standard"
    """Subgroup keys are about four times as fast, on an assumption that is not standard."""
    exponents: Annotated[Literal["half", "short"], Lower] = "half"
    """The length of the random exponents; short ones rest on a stronger assumption."""
    clip: Positive = 1.0
    """The largest magnitude of a coordinate of an update; what is beyond is clipped and counted."""
    value_bits: Annotated[int, Field(ge=8, le=40)] = 24
    """Bits that a coordinate is rounded to."""
    weight_cap: PositiveInt | None = None
    """A public number of examples that counts as weight 1; by default that of the largest client."""
    key: Path | None = None
    """A key file of the authority (private.key), or a folder with the shares; by default a new key for the run."""
    fingerprint: str | None = None
    """The fingerprint the key must have; see `tacit keys fingerprint`."""
    insecure_key_size: bool = False
    """Allow keys below 2048 bits, for experiments."""
    dp: bool = False
    """Differential privacy under encryption: Skellam noise from the clients, set by the section dp (`--dp`)."""
    colluding: Annotated[int, Field(ge=0)] = 0
    """With dp: how many clients may tell the server their noise without epsilon being broken."""


class Flower(Section):
    """How a run lives on Flower, for the engine flower."""

    deadline: Positive = 600.0
    """Seconds a trip to the clients may take; who has not answered by then has dropped out."""
    patience: Positive = 120.0
    """Seconds to wait for all nodes before the first round."""
    cpus: Positive = 1.0
    """CPUs a simulated client is given while it works."""
    gpus: NotNegative = 0.0
    """Share of a GPU likewise."""


class Signds(Section):
    """SignDS with MagRR, for the mode signds; the first five are MindSpore Federated's."""

    sign_k: Annotated[float, _within(0, 0.25)] = 0.01
    """The share of coordinates that count as the largest."""
    sign_eps: Annotated[float, _within(0, 100)] = 100.0
    """What the named coordinates cost a client in a round."""
    sign_thr_ratio: Annotated[float, _within(0.5, 1, closed=True)] = 0.6
    """The least share of the named coordinates that are among the largest, in the mean."""
    sign_global_lr: Annotated[float, _within(0, float("inf"))] = 1.0
    """The step where it is not estimated; a coordinate moves by this over the number of reports a vote."""
    sign_dim_out: Annotated[int, _within(0, 50, closed=True)] = 0
    """How many coordinates are named; 0 for as many as the ratio allows."""
    h_max: PositiveInt | None = None
    """An upper limit to that number."""
    step: Literal["magrr", "fixed"] = "magrr"
    """Whether clients' bits estimate the step, or it is sign_global_lr and no bit is asked for."""
    rr_eps: Positive = 5.0
    """What the bit on the magnitude costs a client in a round (hidden in MindSpore's code)."""
    r_start: Positive = math.exp(-5.0)
    """The first estimate of the magnitude."""
    r_growth: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 5.0
    """The estimate grows by this factor while most magnitudes are beyond it."""
    r_shrink: Annotated[float, Field(gt=1, allow_inf_nan=False)] = 2.0
    """And shrinks by this one, in the contraction phase."""
    growth_bound: Positive = 2.0
    """In the growth phase magnitudes are compared with so many estimates."""
    contraction_bound: Positive = 1.0
    """In the contraction phase with so many."""
    step_factor: Positive = 2.0
    """A vote moves a coordinate by so many estimates."""
    patience: PositiveInt = 11
    """The growth phase ends with the so-manieth round in which most magnitudes are within the bound."""
    min_share: Annotated[float, _within(0, 1, closed=True)] = 0.05
    """Where fewer clients take part in a round, the step is sign_global_lr."""
    shuffle: bool = False
    """Whether epsilon may assume a trusted shuffler between clients and server."""


class Nbafl(Section):
    """NbAFL, for the mode nbafl; the first four are FederatedScope's."""

    mu: NotNegative = 0.0
    """Weight of the proximal term."""
    epsilon: Positive = 100.0
    """The nominal epsilon of the noise's formula."""
    w_clip: Positive = 1.0
    """C: the largest L2 norm of a client's weights."""
    constant: Positive = 30.0
    """c: the nominal delta is 1.25 exp(-c^2/2)."""
    compat: Annotated[Literal["paper", "federatedscope"], Lower] = "paper"
    """Whose formulas for the noise's scale."""
    exposures: PositiveInt | None = None
    """L: how often a client's weights are seen; the expected number if left out."""
    smallest: PositiveInt | None = None
    """m: the fewest examples of a client; counted from the data if left out, which is not private."""
    largest: PositiveInt | None = None
    """The most examples of a client, likewise; for the certified epsilon of FederatedScope's scale."""
