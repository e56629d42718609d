"""The sections of a configuration: every setting, its default, its domain and what it means."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from tacit import limits
from tacit.config.domains import Between, Name, Place

Clients = Annotated[int, Between(1, limits.CLIENTS)]
Rounds = Annotated[int, Between(1, limits.ROUNDS)]
Examples = Annotated[int, Between(1, limits.EXAMPLES)]
Seed = Annotated[int, Between(0, limits.SEED)]
Probability = Annotated[float, Between(0, 1, without_high=True)]
Share = Annotated[float, Between(0, 1, without_low=True)]
Inside = Annotated[float, Between(0, 1, without_low=True, without_high=True)]
Scale = Annotated[float, Between(limits.TINY, limits.HUGE)]
Rate = Annotated[float, Between(limits.TINY, limits.RATE)]
Weight = Annotated[float, Between(0, limits.RATE)]
Noise = Annotated[float, Between(0, limits.NOISE)]
Epsilon = Annotated[float, Between(limits.LEAST_EPSILON, limits.EPSILON)]
Delta = Annotated[float, Between(limits.LEAST_DELTA, 1, without_high=True)]
Seconds = Annotated[float, Between(1e-3, limits.SECONDS)]
Text = Annotated[str, Name(limits.NAME)]
File = Annotated[Path, Place()]
Lower = BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value)


def words(value: Any) -> Any:
    """Return a list of words, also from ``a,b``; none twice."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        return found
    return tuple(dict.fromkeys(part.strip() for one in found for part in one.split(",")))


class Section(BaseModel):
    """A part of the configuration; its docstring and comments are the reference."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, use_attribute_docstrings=True)


class Data(Section):
    """Which examples, and who holds them."""

    name: Text = "mnist"
    """Data set: see `tacit data list`; or a CSV file of your own, such as my.csv."""
    label: Text | None = None
    """Of a CSV file: the column that is to be predicted."""
    client: Text | None = None
    """Of a CSV file: the column that says whose a row is; without it rows are shared out by data.split."""
    test: File | None = None
    """A CSV file with rows to test on, which count as public; without it every fifth row is held out."""
    columns: File | None = None
    """A YAML file with what is publicly known of a CSV file's columns: ranges (`age: [18, 90]`) and categories."""
    drop: Annotated[tuple[Text, ...], BeforeValidator(words)] = ()
    """Columns of a CSV file that are no features, such as an identifier, separated by commas."""
    folder: File | None = None
    """Where to look first for files."""
    split_seed: Seed | None = None
    """Fixes the split alone, so that parties in several places split alike; by default the run's own randomness, and on
    Flower, where no seed is set, 0."""
    split: Text | None = None
    """iid, dirichlet:ALPHA, shards:K, natural or power:A; by default natural where the data have owners, else iid."""
    download: bool = True
    """Whether missing files may be fetched."""
    features: Annotated[Literal["none", "scatter"], Lower] = "none"
    """What a model sees of images: their pixels (none), or scattering features, which cost no privacy (scatter)."""
    scatter_scales: Annotated[int, Between(1, 6)] = 2
    """J: features are taken at every 2^J-th pixel."""
    scatter_angles: Annotated[int, Between(1, 32)] = 8
    """L: how many directions the wavelets have."""


class Model(Section):
    """Which model."""

    name: Text | None = None
    """cnn, tanh-cnn, tempered-cnn, lenet, convnet2, mlp, logistic, scatter-linear, scatter-cnn, or
    package.module:Class; by default what suits the data."""


class Federate(Section):
    """The federation."""

    clients: Clients | None = None
    """How many clients there are; one for each owner with a natural split, else by default what suits mode and data."""
    per_round: Clients | None = None
    """How many take part in a round (the mean with Poisson sampling); all by default."""
    share: Share | None = None
    """Which share of the clients takes part in a round, rounded down, in the place of per_round."""
    sampling: Literal["all", "fixed", "poisson"] | None = None
    """How they are drawn; fixed where per_round is given."""
    separation: Rounds | None = None
    """Each client takes part in every n-th round, by a public schedule that it can check; nothing is drawn, no sampling
    is claimed."""
    rounds: Rounds = 6
    """How many rounds; by default what suits mode and data."""
    minimum_clients: Clients | None = None
    """With fewer replies a round fails closed: half the cohort, at least two where there are two; none in mode dp."""
    drop: Probability = 0.0
    """Simulated drop-outs: the probability that a client of the cohort never answers."""
    retries: Annotated[int, Between(0, limits.RETRIES)] = 2
    """How often a round with too few replies is tried again, with a new cohort."""
    weighting: Literal["examples", "uniform"] | None = None
    """Whether a client counts by its examples or as one; by its examples where no privacy is claimed."""


class Train(Section):
    """Local training."""

    local_epochs: Annotated[int, Between(1, limits.PASSES)] = 1
    """Passes over a client's data in a round; with `tacit train` over all data."""
    batch_size: Examples = 16
    """Examples per step."""
    form: Literal["auto", "lanes", "images", "perceptron", "grouped", "vmap", "loop"] = "auto"
    """How a cohort is computed; see docs/architecture.md."""
    workers: Annotated[int, Between(1, limits.WORKERS)] | None = None
    """Threads that train; one per core by default."""


class Optimizer(Section):
    """The clients' optimiser."""

    name: Annotated[Literal["sgd", "adam", "adamw"], Lower] = "sgd"
    """SGD, Adam or AdamW; what it remembers begins anew in each round of each client."""
    lr: Rate = 0.05
    """Learning rate; by default what suits optimiser and mode."""
    momentum: Probability = 0.5
    """Momentum, as in torch.optim.SGD."""
    weight_decay: Weight = 0.0
    """L2 penalty."""
    final: Share = 0.5
    """Share of the rate that is left in the last round. 1 keeps it constant."""
    schedule: Annotated[Literal["linear", "cosine", "constant"], Lower] = "linear"
    """How the rate falls from lr to its final share over the rounds: in a line, along half a cosine, or not at all."""
    warmup: Annotated[int, Between(0, limits.ROUNDS)] = 0
    """Rounds in which the rate rises in a line before."""
    beta1: Probability = 0.9
    """Beta 1 of Adam and AdamW."""
    beta2: Probability = 0.999
    """Beta 2 of Adam and AdamW."""
    decay: Share = 1.0
    """The rate is multiplied by this after each round."""
    grad_clip: Scale | None = None
    """Largest L2 norm of a step's gradient (an optimiser's clip; it protects nobody)."""
    mu: Weight = 0.0
    """Weight of the proximal term (FedProx)."""


class Server(Section):
    """What the server does with the average."""

    name: Literal["fedavg", "fedavgm", "fedadam", "fedyogi"] = "fedavg"
    """FedAvg, FedAvgM, FedAdam or FedYogi."""
    lr: Rate | None = None
    """Server learning rate; 1 with fedavg is plain averaging. By default what suits optimiser and mode."""
    momentum: Probability = 0.9
    """Momentum of FedAvgM, beta 1 of FedAdam and FedYogi."""
    beta2: Probability = 0.99
    """Beta 2 of FedAdam and FedYogi."""
    tau: Rate = 1e-3
    """Adaptivity of FedAdam and FedYogi."""


class Evaluate(Section):
    """When the server tests the model."""

    every: Rounds = 1
    """Test after every this many rounds, and after the last."""
    train: bool | None = None
    """Whether the model is scored on the training data too: after each tested round if true, never if false; left out,
    only at the end and where no privacy is claimed."""
    metrics: Annotated[
        tuple[Literal["accuracy", "balanced-accuracy", "auc", "f1", "precision", "recall", "per-class"], ...],
        BeforeValidator(words),
    ] = ()
    """What the test also computes, separated by commas: auc, f1, precision, recall, per-class, balanced-accuracy."""
    clients: bool = False
    """Whether the final model is scored on each client's own data too; only in modes that hide nothing."""
    patience: Rounds | None = None
    """Stop after so many tests in a row without a lower test loss; the test data count as public."""


class Dp(Section):
    """Differential privacy: what is clipped, how much noise, and the budget."""

    clip: Scale | Literal["adaptive"] | None = None
    """C: the largest L2 norm of an update, in mode dp-sgd of an example's gradient (`--C`): a number, or adaptive
    (Andrew et al. 2021); by default what suits mode and data."""
    noise: Noise | None = None
    """z: the noise multiplier (`--sigma`); the noise on the sum has standard deviation z C."""
    epsilon: Epsilon | None = None
    """The budget of the whole run; the noise is calibrated to it."""
    delta: Delta = 1e-5
    """The probability epsilon may fail with; well below one over the number of clients, in mode dp-sgd of examples."""
    max_epsilon: Epsilon | None = None
    """Stop before the round that would exceed this."""
    neighbours: Literal["add-remove", "replace-one", "zero-out"] | None = None
    """What epsilon hides: that a client is there, which of two it is (2C), or what it contributed, not its presence."""
    weight_cap: Examples | None = None
    """Weight a client by min(examples / this, 1); without it all clients count the same."""
    denoise: Literal["none", "james-stein", "soft-threshold"] = "none"
    """Post-processing of the noisy average; costs no privacy."""
    per_layer: bool = False
    """Clip each of the model's G tensors to C / sqrt(G) instead of the whole update to C."""
    noise_split: Literal["even", "variance-minimal"] = "even"
    """Whether layers share the noise evenly or with the least total variance (needs per_layer)."""
    amplification: bool = True
    """Whether epsilon counts on nobody knowing a cohort; without it rounds cost more, and their true sizes are told."""
    correlation: Annotated[Literal["none", "banded", "toeplitz", "blt"], Lower] = "none"
    """Whether rounds take back noise of earlier ones: the best matrix with dp.bands bands, the best with constant bands
    (toeplitz), or decaying exponentials (blt); needs federate.separation. `dp.noise=banded` is short for it."""
    bands: Rounds | None = None
    """How many rounds' noise is combined, and kept in memory: at most federate.separation, which is the default."""
    buffers: Annotated[int, Between(1, 12)] | None = None
    """How many vectors a BLT keeps in memory, 4 by default."""
    mechanism: Literal["analytic", "classical", "dp-opt", "zhao-1", "zhao-2", "extended"] | None = None
    """How local-dp calibrates a message to its share of epsilon; by the whole run's exact cost if left out."""
    clip_start: Scale = 0.1
    """The first bound of adaptive clipping."""
    clip_quantile: Inside = 0.5
    """The share of updates that adaptive clipping leaves whole."""
    clip_rate: Share = 0.2
    """How fast the adaptive bound moves."""


class DpSgd(Section):
    """DP-SGD: for the mode dp-sgd, for `tacit train`, and inside the clients of dp and local-dp."""

    noise: Noise | None = None
    """z of the examples: the noise on a batch's sum has standard deviation z C; in mode dp-sgd dp.noise will do."""
    epsilon: Epsilon | None = None
    """The examples' budget over the whole run; in mode dp-sgd dp.epsilon (`--epsilon`) will do."""
    delta: Delta | None = None
    """Its delta, well below one over the number of examples; dp.delta if left out."""
    max_epsilon: Epsilon | None = None
    """Stop before the round that would bring a client's examples over this."""
    clip: Scale | None = None
    """C: the largest L2 norm of an example's gradient, 1 if left out; in mode dp-sgd dp.clip (`--C`) will do."""
    clipping: Literal["flat", "per-layer", "automatic"] = "flat"
    """One bound for the whole gradient, C / sqrt(L) for each of L layers, or normalised (Bu et al. 2023)."""
    batch_size: Examples | None = None
    """The mean size of a Poisson batch; 512, or all examples where a holder has fewer, if left out."""
    steps: Annotated[int, Between(1, limits.STEPS)] | None = None
    """Steps of a client's round, or of the whole run alone (`--iterations`); train.local_epochs passes if left out."""
    micro_batch: Examples | None = None
    """How many examples go through the model at once, to save memory."""
    budget_by: Literal["tight", "advanced-composition", "advanced-composition-exact"] = "tight"
    """How epsilon becomes noise: the least that will do, or the DP-SGD lab's method (two steps, or its exact root)."""


class Paillier(Section):
    """Encryption, for the mode paillier."""

    bits: Annotated[int, Between(64, limits.KEY_BITS)] = 3072
    """The key's length: 3072 is 128 bits of security, 2048 is 112."""
    keys: Annotated[Literal["authority", "threshold", "shared"], Lower] = "authority"
    """Who has the private key: an authority apart from the server, several by shares, or all clients (legacy)."""
    shares: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,3}/[1-9][0-9]{0,3}$")] = "2/3"
    """With keys=threshold: how many of how many key holders it takes to open a sum; more than half."""
    prove: bool = True
    """Whether key holders prove that their shares of a decryption are right; looked at where shares don't combine."""
    kind: Annotated[Literal["standard", "subgroup"], Lower] = "standard"
    """Subgroup keys are about four times as fast, on an assumption that is not standard."""
    exponents: Annotated[Literal["half", "short"], Lower] = "half"
    """The length of the random exponents; short ones rest on a stronger assumption."""
    clip: Scale = 1.0
    """The largest magnitude of a coordinate of an update; what is beyond is clipped and counted."""
    value_bits: Annotated[int, Between(8, 40)] = 24
    """Bits that a coordinate is rounded to."""
    weight_cap: Examples | None = None
    """A public number of examples that counts as weight 1; by default the largest client's, or 10,000 where nobody
    sees that, as on Flower."""
    key: File | None = None
    """A key file of the authority (private.key), or a folder with the shares; by default a new key for the run."""
    fingerprint: Text | None = None
    """The fingerprint the key must have; see `tacit keys fingerprint`."""
    insecure_key_size: bool = False
    """Allow keys below 2048 bits, for experiments."""
    dp: bool = False
    """Differential privacy of the sum (`--dp`, also in mode masks): Skellam noise from the clients, set by the section
    dp."""
    colluding: Annotated[int, Between(0, limits.CLIENTS)] = 0
    """With dp: how many clients may tell the server their noise without epsilon being broken."""


class Masks(Section):
    """Sums under masks, for the mode masks."""

    corrupted: Annotated[float, Between(0, 0.5)] = 0.05
    """The share of a round's clients that may side with the server; neighbours, threshold and noise are set by it."""
    signed: bool | None = None
    """Whether clients sign the list of those in a sum, against a server that lies; by default on Flower."""
    clip: Scale = 1.0
    """The largest magnitude of a coordinate of an update; what is beyond is clipped and counted."""
    value_bits: Annotated[int, Between(8, 40)] | None = None
    """Bits that a coordinate is rounded to; by default as many as leave a sum 32, and at most 24."""
    weight_cap: Examples | None = None
    """A public number of examples that counts as weight 1; by default the largest client's, or 10,000 where nobody
    sees that, as on Flower."""
    dp: bool = False
    """Differential privacy of the sum (`--dp`): Skellam noise from the clients, set by the section dp."""


class Audit(Section):
    """A claim attacked while the run goes on."""

    canaries: Annotated[int, Between(1, limits.CLIENTS)] | None = None
    """How many made-up clients are looked for in what is released; coins put half of them into the training."""


class Flower(Section):
    """How a run lives on Flower, for the engine flower."""

    deadline: Seconds = 600.0
    """Seconds a trip to the clients may take; who has not answered by then has dropped out."""
    patience: Seconds = 120.0
    """Seconds to wait for all nodes before the first round."""
    cpus: Annotated[float, Between(1e-3, 1e5)] = 1.0
    """CPUs that a simulated client is given while it works."""
    gpus: Annotated[float, Between(0, 1e3)] = 0.0
    """Share of a GPU likewise."""


class Signds(Section):
    """SignDS with MagRR, for the mode signds; the first five are MindSpore Federated's."""

    sign_k: Annotated[float, Between(0, 0.25, without_low=True)] = 0.01
    """The share of coordinates that count as the largest."""
    sign_eps: Annotated[float, Between(0, 100, without_low=True)] = 100.0
    """What the named coordinates cost a client in a round."""
    sign_thr_ratio: Annotated[float, Between(0.5, 1)] = 0.6
    """The least share of the named coordinates that are among the largest, in the mean."""
    sign_global_lr: Rate = 1.0
    """The step where it is not estimated; with each vote a coordinate moves by this over the number of reports."""
    sign_dim_out: Annotated[int, Between(0, 50)] = 0
    """How many coordinates are named; 0 for as many as the ratio allows."""
    h_max: Examples | None = None
    """An upper limit to that number."""
    step: Literal["magrr", "fixed"] = "magrr"
    """Whether clients' bits estimate the step, or it is sign_global_lr and no bit is asked for."""
    rr_eps: Annotated[float, Between(limits.LEAST_EPSILON, 100)] = 5.0
    """What the bit on the magnitude costs a client in a round (hidden in MindSpore's code)."""
    r_start: Rate = math.exp(-5.0)
    """The first estimate of the magnitude."""
    r_growth: Annotated[float, Between(1, 1e3, without_low=True)] = 5.0
    """The estimate grows by this factor while most magnitudes are beyond it."""
    r_shrink: Annotated[float, Between(1, 1e3, without_low=True)] = 2.0
    """And shrinks by this one, in the contraction phase."""
    growth_bound: Rate = 2.0
    """In the growth phase magnitudes are compared with so many estimates."""
    contraction_bound: Rate = 1.0
    """In the contraction phase with so many."""
    step_factor: Rate = 2.0
    """A vote moves a coordinate by so many estimates."""
    patience: Rounds = 11
    """The growth phase ends after this many rounds in which most magnitudes are within the bound."""
    min_share: Annotated[float, Between(0, 1)] = 0.05
    """Where fewer clients take part in a round, the step is sign_global_lr."""
    shuffle: bool = False
    """Whether epsilon may assume a trusted shuffler between clients and server."""


class Nbafl(Section):
    """NbAFL, for the mode nbafl; the first four are FederatedScope's."""

    mu: Weight = 0.0
    """Weight of the proximal term."""
    epsilon: Epsilon = 100.0
    """The nominal epsilon of the noise's formula."""
    w_clip: Scale = 1.0
    """C: the largest L2 norm of a client's weights; in FederatedScope's NbAFL that of a coordinate, on the server."""
    constant: Annotated[float, Between(1e-3, 37)] = 30.0
    """c: the nominal delta is 1.25 exp(-c^2/2)."""
    compat: Annotated[Literal["paper", "federatedscope"], Lower] = "paper"
    """Whose algorithm: the paper's, which clips on the client, or FederatedScope's, of which no epsilon holds."""
    exposures: Rounds | None = None
    """L: how often a client's weights are seen; the expected number if left out."""
    smallest: Examples | None = None
    """m: the fewest examples of a client; counted from the data if left out, which is not private."""
