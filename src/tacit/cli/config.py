"""``tacit config``: the effective configuration."""

from __future__ import annotations

import sys

from tacit.cli import options
from tacit.cli.output import JsonFlag, emit_json


@options.configured(*options.RUN)
def config(asked: options.Asked, as_json: JsonFlag = False) -> None:
    """Print the effective configuration as YAML, with every default; with --mode, that mode's keys, each explained.

    What it prints is a job file: `tacit config --mode dp > job.yaml`, then `tacit run job.yaml`.
    """
    from tacit.modes.catalogue import mode_of, resolve
    from tacit.modes.settings import known_keys, suited

    effective = resolve(suited(asked.config())[0])
    if as_json:
        emit_json(effective.model_dump(mode="json"))
    elif options.MODE in asked.flags:
        sys.stdout.write(effective.explained({key: options.explained(key) for key in known_keys(effective)}))
        if mode_of(effective.mode).examples == "optional":
            sys.stdout.write("\n# Keys of dpsgd protect single examples as well: `tacit config --mode dp-sgd`.\n")
    else:
        sys.stdout.write(effective.to_yaml())
