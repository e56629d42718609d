"""The names of the experiments; a module is loaded only when its experiment is run."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from importlib import import_module

from tacit.errors import ConfigError
from tacit_labs.harness.experiment import Experiment

ALL = "all"
MODULES: Mapping[str, str] = {  # name -> the module whose EXPERIMENT it is
    "report-000": "tacit_labs.report_000.run",
    "report-003": "tacit_labs.report_003.run",
    "lab-004": "tacit_labs.lab_004.run",
    "signds-001": "tacit_labs.signds_001.run",
    "nbafl-femnist": "tacit_labs.nbafl_femnist.run",
}


def chosen(names: Sequence[str]) -> list[str]:
    """Return the experiments that a command line names, each once; ``all`` is every one.

    >>> chosen(["report-000", "report-000"]), len(chosen(["all"])) == len(MODULES)
    (['report-000'], True)
    >>> chosen(["report-00"])
    Traceback (most recent call last):
    tacit.errors.ConfigError: Unknown experiment 'report-00'. Did you mean 'report-003'? There are ...
    """
    found: list[str] = []
    for name in names:
        if name == ALL:
            found += MODULES
        elif name in MODULES:
            found.append(name)
        else:
            near = difflib.get_close_matches(name.lower().replace("_", "-"), (*MODULES, ALL), n=1, cutoff=0.5)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"Unknown experiment {name!r}.{hint} There are {', '.join(MODULES)}, and {ALL}.")
    return list(dict.fromkeys(found))


def load(name: str) -> Experiment:
    """Return an experiment by its name."""
    experiment: Experiment = import_module(MODULES[name]).EXPERIMENT
    return experiment
