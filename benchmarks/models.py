"""Models nobody tuned for, beside a plain loop, a plain step and Opacus: the same as `tacit bench models`.

    python benchmarks/models.py [--gpu 0] [--quick] [--only NAME ...] [--part around|rounds|few|real|steps ...]
        [--text tinyshakespeare.txt] [--table adult.data]

Without --gpu it measures the CPU. Results go to benchmarks/results/models.json (models_gpu.json with --gpu) after every
measurement. Opacus is not a dependency of Tacit: without it its columns are missing. To have them, run this file with
an environment that has both, as benchmarks/dp_sgd.py says.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

from tacit_labs.bench.documented.common import keep, rewrite  # noqa: E402 - after the path is set
from tacit_labs.bench.documented.models import page  # noqa: E402 - after the path is set
from tacit_labs.bench.documented.models.run import measure, table  # noqa: E402 - after the path is set

FILES = ("models.json", "models_gpu.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", type=int)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a model; all if left out")
    parser.add_argument(
        "--part", action="append", default=[], help="around, rounds, few, real or steps; all if left out"
    )
    parser.add_argument("--text", type=Path, help="tinyshakespeare, for real speakers")
    parser.add_argument("--table", type=Path, help="UCI's adult.data, for real trades")
    parser.add_argument("--results", type=Path)
    parser.add_argument(
        "--page-only", action="store_true", help="measure nothing; fill the tables of the documentation"
    )
    options = parser.parse_args()
    if options.page_only:
        cpu, gpu = (json.loads((ROOT / "benchmarks" / "results" / name).read_text()) for name in FILES)
        rewrite(ROOT / "docs" / "benchmarks.md", lambda text: page.filled(text, page.table(cpu, gpu)))
        rewrite(ROOT / "README.md", lambda text: page.filled(text, page.short(cpu, gpu)))
        return
    name = FILES[options.gpu is not None]
    path = options.results or ROOT / "benchmarks" / "results" / name
    found = measure(
        models=options.only,
        parts=options.part,
        gpu=options.gpu,
        text=options.text,
        table=options.table,
        quick=options.quick,
        progress=lambda what: print(what, file=sys.stderr, flush=True),
        so_far=lambda results: keep(results, path),
    )
    print(table(found))


if __name__ == "__main__":
    main()
