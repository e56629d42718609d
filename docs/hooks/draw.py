"""Draws the Mermaid blocks of the documentation as SVG, for the site and for readers without a network.

    npm install mermaid && python docs/hooks/draw.py --mermaid node_modules/mermaid/dist/mermaid.min.js

Needs a Chromium. The SVGs lie in docs/figures/drawings under the digest of their sources; those that no page has any
more are deleted.
"""

from __future__ import annotations

import argparse
import html
import re
import subprocess
import tempfile
from pathlib import Path

from site_hooks import DRAWINGS, MERMAID, drawing_of

DOCS = Path(__file__).parents[1]
PAGE = """<!doctype html><meta charset="utf-8"><pre id="source">{source}</pre><div id="out"></div>
<script src="{script}"></script><script>
mermaid.initialize({{startOnLoad: false, theme: "neutral", flowchart: {{htmlLabels: false}}}});
mermaid.render("drawing", document.getElementById("source").textContent)
  .then(({{svg}}) => {{ document.getElementById("out").innerHTML = svg; document.title = "done"; }});
</script>"""


def main() -> None:
    """Draw what has no drawing yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mermaid", type=Path, required=True, help="mermaid.min.js")
    parser.add_argument("--chromium", default="chromium")
    options = parser.parse_args()
    sources = [source for page in DOCS.rglob("*.md") for source in MERMAID.findall(page.read_text())]
    DRAWINGS.mkdir(exist_ok=True)
    for path in set(DRAWINGS.glob("*.svg")) - {drawing_of(source) for source in sources}:
        path.unlink()
    for source in sources:
        if not drawing_of(source).exists():
            drawing_of(source).write_text(_drawn(source, options.mermaid.resolve(), options.chromium))
            print(drawing_of(source))


def _drawn(source: str, script: Path, chromium: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        page.write_text(PAGE.format(source=html.escape(source), script=script.as_uri()))
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        done = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, check=True)
    found = re.search(r'<div id="out">(<svg.*?</svg>)</div>', done.stdout, re.DOTALL)
    if found is None:
        raise SystemExit(f"Mermaid drew nothing of:\n{source}")
    return found[1] + "\n"


if __name__ == "__main__":
    main()
