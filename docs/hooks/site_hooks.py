"""What MkDocs calls while it builds the site, so that readers need neither a network nor a script.

Formulas become MathML, which browsers draw themselves; drawings in Mermaid's language are shown as the SVG that
``python docs/hooks/draw.py`` made of them; the page of commands is written from the commands.
"""

from __future__ import annotations

import hashlib
import html
import re
from pathlib import Path
from typing import Any

import click
from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from typer.main import get_command

from tacit.cli.main import app

COMMANDS = "reference/command-line.md"
DRAWINGS = Path(__file__).parents[1] / "figures" / "drawings"
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def drawing_of(source: str) -> Path:
    """Return where the SVG of a drawing lies; its name is made of the drawing, so that an old one is never shown."""
    return DRAWINGS / f"{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Put drawings in the place of their sources."""

    def drawn(found: re.Match[str]) -> str:
        path = drawing_of(found[1])
        if not path.exists():
            raise PluginError(f"A drawing was changed: `python docs/hooks/draw.py` makes {path.name}.")
        return f'<figure class="drawing">{path.read_text()}</figure>'

    return MERMAID.sub(drawn, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Turn formulas into MathML."""

    def formula(found: re.Match[str]) -> str:
        latex = html.unescape(found[2]).strip()
        display = "block" if latex.startswith("\\[") else "inline"
        return convert(latex[2:-2].strip(), display=display)

    return FORMULA.sub(formula, content)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the page of commands."""
    files.append(File.generated(config, COMMANDS, content=command_page()))
    return files


def command_page() -> str:
    """Return every command with its help, arguments and options, as the command line itself has them."""
    command = get_command(app)
    parts = ["# The command line", "Every command with all its options, written from the commands themselves.", ""]
    return "\n".join(parts) + "\n" + "\n".join(_command(command, "tacit", 1))


def _command(command: Any, path: str, depth: int) -> list[str]:
    context = click.Context(command, info_name=path)
    lines: list[str] = []
    if depth > 1:
        lines += [f"{'#' * depth} `{path}`", "", _prose(command.help or ""), ""]
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                lines += _command(child, f"{path} {name}", depth + 1)
        return lines
    usage = " ".join(command.collect_usage_pieces(context))
    lines += ["```text", f"{path} {usage}", "```", ""]
    rows = [row for parameter in command.params if (row := _row(parameter, context))]
    if rows:
        lines += ["| option | what it does | default |", "|---|---|---|", *rows, ""]
    return lines


def _row(parameter: Any, context: Any) -> str | None:
    if getattr(parameter, "hidden", False):
        return None
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    if parameter.param_type_name == "argument":
        names = f"`{parameter.make_metavar(context)}`"
    default = parameter.get_default(context, call=False)
    shown = "" if default in (None, (), [], "") or callable(default) else f"`{default}`"
    return f"| {names} | {_prose(getattr(parameter, 'help', '') or '').replace('|', '&#124;')} | {shown} |"


def _prose(text: str) -> str:
    """Return help without the marks that terminals read; what has to keep its lines is code."""
    parts = re.sub(r"\[/?[a-z ]+\]", "", text).split("\n\n")
    return "\n\n".join(
        f"```text\n{part[2:]}\n```" if part.startswith("\b\n") else " ".join(part.split("\n")) for part in parts
    )
