"""Charts of Tacit's pages as pictures for the documentation.

Pages are what `tacit reproduce`, `compare`, `bench` and `report` write. A chart becomes PAGE-TITLE.png, in the light
theme, with its title on top and, where another chart of the page has the same title, its section.
"""

from __future__ import annotations

import base64
import html
import io
import json
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import RunError
from tacit.storage import write_atomically

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # surfaces need WebGL
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--dump-dom",
)
LOOKED_AT = ("print", "theme", "live", "trouble")  # what the page's script expects around the charts
BUDGETS = (10_000, 60_000, 240_000)  # virtual milliseconds: a busy machine may need another try
SECONDS = 300  # by the clock, for one try
NARROW = 0.61  # of the width, for pictures beside each other
LIMIT = 120_000  # bytes of a picture
COLOURS = (256, 128, 64, 32)  # the first that stays below the limit, or the last

# Alone on the page a chart gets the whole width, so that its legend and its height are right for the picture.
STYLE = """<style>
main { max-width: none; padding: 0; } figure { width: calc(%dpx - 20px); }
</style>"""
MAIN = """<main><figure><div class="chart" id="chart-0" style="height:%dpx"></div></figure></main>
<script>
(() => {
  const root = document.documentElement;
  const [title, section] = %s;
  const TITLE = section ? 62 : 40, EDGE = 10; // pixels for the title and on both sides
  const save = async () => {
    const place = document.getElementById("chart-0");
    const width = place.clientWidth, height = place.layout.height;
    const image = new Image();
    image.src = await Plotly.toImage(place, { format: "png", width, height, scale: 2 });
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [2 * (width + 2 * EDGE), 2 * (height + TITLE)];
    const context = canvas.getContext("2d");
    const style = getComputedStyle(root);
    context.fillStyle = style.getPropertyValue("--panel").trim();
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.fillStyle = style.getPropertyValue("--ink").trim();
    context.font = `600 34px ${style.getPropertyValue("--font").trim()}`;
    context.textBaseline = "middle";
    context.fillText(title, 2 * EDGE, 40, canvas.width - 4 * EDGE);
    context.fillStyle = style.getPropertyValue("--soft").trim();
    context.font = `26px ${style.getPropertyValue("--font").trim()}`;
    context.fillText(section, 2 * EDGE, 86, canvas.width - 4 * EDGE);
    context.drawImage(image, 2 * EDGE, 2 * TITLE);
    root.dataset.figure = canvas.toDataURL("image/png");
  };
  const watch = new MutationObserver(() => {
    if (root.dataset.charts !== "drawn") return;
    watch.disconnect();
    save();
  });
  watch.observe(root, { attributes: true });
})();
</script>
"""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart of a page and the picture it becomes."""

    number: int
    title: str
    section: str  # where it stands, if another chart of the page has the same title
    name: str  # of the file, without .png

    def called(self, word: str) -> bool:
        """Whether ``word`` is its title or its name."""
        return word.casefold() in (self.title.casefold(), self.name.casefold())


def figures(page: str, stem: str) -> list[Figure]:
    """Return the charts of a page in their order; the second of a title is called TITLE-2."""
    pattern = r'<h2>([^<]*)</h2>|<figure><h3>([^<]*)</h3><div class="chart" id="chart-(\d+)"'
    section, places = "", []
    for heading, title, number in re.findall(pattern, page):
        if number:
            places.append((int(number), html.unescape(title), section))
        else:
            section = html.unescape(heading)
    titles = [title for _, title, _ in places]
    found = []
    for place, (number, title, section) in enumerate(places):
        slug = re.sub(r"[^a-z0-9]+", "-", re.sub("[',]", "", title.lower())).strip("-")
        before = titles[:place].count(title)
        name = f"{stem}-{slug}" + (f"-{before + 1}" if before else "")
        told = section if titles.count(title) > 1 else ""
        found.append(Figure(number=number, title=title, section=told, name=name))
    return found


def shown(text: str) -> dict[str, bool]:
    """Return the names of the pictures in a Markdown page, and whether each stands in a table, beside another."""
    return {
        name: line.startswith("|") for line in text.splitlines() for name in re.findall(r"/([a-z0-9-]+)\.png\)", line)
    }


def browser() -> str:
    """Return the path of an installed browser."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise RunError(f"No Chromium is installed (looked for {', '.join(BROWSERS)}). Install one, then try again.")
    return found


def alone(page: str, figure: Figure, *, width: int) -> str:
    """Return the page with one chart and nothing else, which leaves its picture in the page's first tag."""
    block = re.search(r'<script id="charts" type="application/json">(.*?)</script>', page, re.DOTALL)
    if block is None:
        raise RunError(f"{figure.name} has no data in its page: expected a page that Tacit wrote.")
    data = json.loads(block.group(1))
    chart = data["charts"][figure.number]
    words = json.dumps([figure.title, figure.section]).replace("<", "\\u003c")
    head = page[: page.index("</head>")].replace('<html lang="en">', '<html lang="en" data-theme="light">', 1)
    places = "".join(f'<p id="{name}" hidden></p>' for name in LOOKED_AT)
    main = MAIN % (chart["height"], words)
    charts = json.dumps(data | {"charts": [chart]}).replace("<", "\\u003c")
    script = f'<script id="charts" type="application/json">{charts}</script>{page[block.end() :]}'
    return f"{head}{STYLE % width}</head><body>{places}{main}{script}"


def picture(page: str, figure: Figure, *, width: int) -> bytes:
    """Draw a chart in the browser and return it as PNG, at twice ``width`` pixels."""
    command = [browser(), *FLAGS, f"--window-size={width + 100},1200"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "page.html"
        copy.write_text(alone(page, figure, width=width), encoding="utf-8")
        for budget in BUDGETS:
            profile = f"--user-data-dir={folder}/profile-{budget}"
            done = subprocess.run(
                [*command, profile, f"--virtual-time-budget={budget}", copy.as_uri()],
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            found = re.search(r'<html[^>]* data-figure="data:image/png;base64,([^"]*)"', done.stdout)
            if found is not None:
                return base64.b64decode(found.group(1))
    trouble = re.search(r'<p id="trouble">([^<]*)</p>', done.stdout)
    said = trouble.group(1) if trouble else done.stderr.strip()[-500:] or "the browser said nothing."
    raise RunError(f"{figure.name} could not be drawn: {said}")


def compressed(data: bytes) -> bytes:
    """Return a picture with as many colours as the limit allows."""
    try:
        from PIL import Image
    except ImportError:
        raise RunError("Pillow is not installed, which makes the pictures small: pip install 'tacit[plot]'.") from None
    image = Image.open(io.BytesIO(data)).convert("RGB")
    small = data
    for colours in COLOURS:
        buffer = io.BytesIO()
        image.quantize(colours, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        small = buffer.getvalue()
        if len(small) <= LIMIT:
            break
    return small


def save(pages: Sequence[Path], out: Path, *, only: Sequence[str], shown_in: Path | None, width: int) -> None:
    """Save the charts of pages as PNG: all, or ``only`` those of some titles, or those that a Markdown page shows."""
    texts: dict[Path, str] = {}
    for path in (*pages, *([shown_in] if shown_in else [])):
        if not path.is_file():
            raise RunError(f"There is no page {path}. Make it first, for example with: tacit reproduce report-000")
        texts[path] = path.read_text(encoding="utf-8")
    wanted = shown(texts.pop(shown_in)) if shown_in else {}
    found = {path: figures(text, path.stem) for path, text in texts.items()}
    every = [one for charts in found.values() for one in charts]
    if not every:
        raise RunError(f"There are no charts in {', '.join(map(str, texts))}: expected pages that Tacit wrote.")
    own = [name for name in wanted if any(name.startswith(f"{path.stem}-") for path in texts)]
    for word in (*only, *own):
        if not any(one.called(word) for one in every):
            names = "\n".join(f"  {one.name}: {one.title}" for one in every)
            raise RunError(f"There is no chart {word!r}. The pages have:\n{names}")
    for path, charts in found.items():
        for one in charts:
            if (only and not any(one.called(word) for word in only)) or (shown_in and one.name not in wanted):
                continue
            narrow = wanted.get(one.name, False)
            small = compressed(picture(texts[path], one, width=round(NARROW * width) if narrow else width))
            target = out / f"{one.name}.png"
            write_atomically(target, small)
            print(f"{target} {len(small) / 1000:.0f} kB")
