"""How far one walks to understand a round: the files of Tacit that a steady round crosses.

    python benchmarks/walk.py

Prints each file and what is called in it, for a plain round, one with differential privacy, and an encrypted one with
differential privacy.
"""

from __future__ import annotations

from tacit_labs.bench.documented.common import in_a_child
from tacit_labs.bench.documented.walk import SETTINGS

_SHOWN = 6  # names per file


def main() -> None:
    for name in SETTINGS:  # a process each, so that no thread was started before its tracing
        ((_, files),) = in_a_child("tacit_labs.bench.documented.walk", name, settings={}).items()
        print(f"{name}: {len(files)} files")
        for path, called in files.items():
            print(f"  {path:40} {', '.join(called[:_SHOWN])}{', ...' if len(called) > _SHOWN else ''}")


if __name__ == "__main__":
    main()
