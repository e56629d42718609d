"""Job files, in Tacit's words and in other frameworks', overrides and axes of the command line."""

from __future__ import annotations

import hashlib
from pathlib import Path

import yaml

from tacit.config import overrides
from tacit.config import run_config as config
from tacit.config.run_config import RunConfig
from tacit.modes.catalogue import resolve
from tacit.studies import plan
from tests.fuzz.harness import Target
from tests.fuzz.targets.files import written

_OWN = (
    "mode: dp\nseed: 7\ndata: {name: digits}\nfederate: {rounds: 3, clients: 5, per_round: 2}\n"
    "dp: {noise: 1.0, clip: 0.5}\n",
    "mode: paillier\nlog: [tensorboard]\npaillier:\n  keys: threshold\n  shares: 2/3\n  key: keys\n  bits: 3072\n"
    "out: runs/a\n",
    "federate.rounds: 3\noptimizer: &o {lr: 0.1}\nserver: {<<: *o, name: fedavgm}\nevaluate:\n",
    "mode: local-dp\ndp:\n  epsilon: 8\n  delta: 1e-5\n  clip: adaptive\n"
    "model: {name: lenet}\ntrain: {local_epochs: 2}\n",
)
_DIALECTS = (
    "encrypt:\n  encrypt_train_type: SIGNDS\n  signds:\n    sign_k: 0.2\n    sign_eps: 100\n    sign_thr_ratio: 0.6\n"
    "    sign_global_lr: 1\n    sign_dim_out: 0\n  pw_encrypt: {share_secrets_ratio: 1.0}\n",
    "nbafl:\n  use: True\n  mu: 0.01\n  epsilon: 50\n  w_clip: 0.1\n  constant: 30\nfederate: {rounds: 4}\n",
    "encrypt: {encrypt_type: NOT_ENCRYPT}\nseed: 1\n",
)
_WORDS = (
    "federate.rounds=20\noptimizer.lr\n0.1",
    "mode=dp\ndp.noise=1.0\ndp.clip=adaptive\ndata.split=dirichlet:0.3",
    "dp.clip=0.1:0.5:3\ndp.noise=log:0.1:10:3\nmode=dp,local-dp",
    "seed=3\nout=a/b\nlog=tensorboard,mlflow\npaillier.shares=2/3",
)


def _read(data: bytes) -> RunConfig:
    return config.from_mapping(overrides.parse([str(written("job.yaml", data))]))


def _job(data: bytes) -> None:
    """What is understood is written and understood again, and its defaults can be found."""
    job = _read(data)
    resolve(job)
    assert config.from_mapping(job.model_dump(mode="json", exclude_unset=True)) == job
    if hashlib.sha256(data).digest()[0] < 10:  # the whole of it takes as long as twenty inputs
        assert config.from_mapping(yaml.safe_load(job.to_yaml())) == job


def _overrides(data: bytes) -> None:
    words = [word for word in data.decode(errors="replace").split("\n") if not Path(word).suffix]
    axes, rest = plan.parse_axes(words)
    assert sum(len(axis.values) for axis in axes) <= plan.MOST * len(words)
    config.from_mapping(overrides.parse(rest))


TARGETS = (
    Target(name="configs", seeds=lambda: [text.encode() for text in _OWN], check=_job, form="yaml", inputs=700),
    Target(name="dialects", seeds=lambda: [text.encode() for text in _DIALECTS], check=_job, form="yaml", inputs=700),
    Target(
        name="overrides", seeds=lambda: [text.encode() for text in _WORDS], check=_overrides, form="words", inputs=1000
    ),
)
