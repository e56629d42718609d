"""``tacit config``: the effective configuration."""

from __future__ import annotations

import sys

from tacit.cli import options
from tacit.cli.output import JsonFlag, emit_json


@options.configured()
def config(asked: options.Asked, as_json: JsonFlag = False) -> None:
    """Print the full effective configuration as YAML, with every default."""
    from tacit.modes.catalogue import resolve
    from tacit.modes.settings import suited

    effective = resolve(suited(asked.config())[0])
    if as_json:
        emit_json(effective.model_dump(mode="json"))
    else:
        sys.stdout.write(effective.to_yaml())
