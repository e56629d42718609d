"""Charts of Tacit's pages as pictures for the documentation.

    python benchmarks/figures.py reproductions/report-000.html --out docs/figures --only "Test accuracy"
    python benchmarks/figures.py reproductions/*.html --out docs/figures --shown-in docs/reproductions.md --width 720

Pages are what `tacit reproduce`, `compare`, `bench` and `report` write. A chart becomes PAGE-TITLE.png, in the light
theme, with its title on top and, where another chart of the page has the same title, its section. Without `--only`
or `--shown-in` every chart is saved.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from tacit.errors import TacitError
from tacit_labs.bench.documented.figures import save


def main() -> None:
    parser = argparse.ArgumentParser(description="Save charts of Tacit's pages as PNG.")
    parser.add_argument("pages", nargs="+", type=Path, metavar="PAGE.html")
    parser.add_argument("--out", type=Path, required=True, help="folder of the pictures")
    parser.add_argument("--only", action="append", default=[], help="title or file name of a chart; can be repeated")
    parser.add_argument("--shown-in", type=Path, metavar="PAGE.md", help="only charts that this page shows")
    parser.add_argument("--width", type=int, default=900, help="in CSS pixels; a picture has twice as many")
    options = parser.parse_args()
    try:
        save(options.pages, options.out, only=options.only, shown_in=options.shown_in, width=options.width)
    except TacitError as error:
        parser.exit(1, f"{error}\n")


if __name__ == "__main__":
    main()
