"""With what a run was made: its configuration and its environment."""

from __future__ import annotations

from pathlib import Path

from tacit.config.overrides import flat
from tacit.config.run_config import RunConfig
from tacit.report.page import Code, Fold, Part, Section, Table, Text
from tacit.report.words import time_text
from tacit.runs.history import History
from tacit.runs.journal import Environment, Resume

_NAMES = {
    "tacit": "tacit",
    "python": "Python",
    "torch": "torch",
    "numpy": "NumPy",
    "system": "system",
    "cpu": "processor",
    "cores": "cores it may use",
    "gpu": "GPU",
    "crypto": "cryptography",
    "kernels": "training kernels",
}


def configuration(history: History, *, full: bool) -> Section:
    """Return what was set, and the whole file; folders are cut to their names unless ``full`` is asked for."""
    config = history.config if full else _without_folders(history.config)
    rows = _changed(config)
    parts: list[Part] = []
    if rows:
        parts.append(
            Table(
                columns=("setting", "value", "default"),
                rows=rows,
                align="lll",
                caption="What differs from the defaults",
            )
        )
    else:
        parts.append(Text(text="Everything is as by default."))
    parts.append(Fold(summary="The whole configuration", parts=(Code(text=config.to_yaml()),)))
    return Section(title="Configuration", parts=parts)


def environment(history: History) -> Section:
    """Return versions and machine, of the beginning and of each time the run was resumed."""
    told = history.start.environment
    parts: list[Part] = []
    if told is None:
        version = f" It was made by tacit {history.result.version}." if history.result else ""
        parts.append(Text(text=f"The journal does not say where the run was made: it is of an older version.{version}"))
    else:
        device = history.result.device if history.result else history.start.device
        rows = [(name, getattr(told, key)) for key, name in _NAMES.items() if getattr(told, key)]
        form = history.result.form if history.result else history.start.form
        reason = f": {history.result.form_reason}" if history.result and history.result.form_reason else ""
        rows += [("trained on", device), ("form of training", f"{form}{reason}")]
        engine = history.result.engine if history.result else history.config.engine
        rows.append(("engine", engine))
        parts.append(Table(columns=(), rows=rows))
    parts += [Text(text=_resumed(each, told)) for each in history.resumes]
    return Section(title="Environment", parts=parts)


def _resumed(resumption: Resume, before: Environment | None) -> str:
    """Return the sentence on a resumption, with what had changed by then."""
    now = resumption.environment
    changed = [
        f"{name} {getattr(now, key)}"
        for key, name in _NAMES.items()
        if now is not None and getattr(now, key) and (before is None or getattr(now, key) != getattr(before, key))
    ]
    words = f"then with {', '.join(changed)}." if changed else "in the same environment."
    return f"Resumed {time_text(resumption.time)}, {words}"


def _changed(config: RunConfig) -> list[tuple[str, str, str]]:
    """Return the settings that differ from the defaults, by their dotted keys."""
    rows = []
    defaults = dict(flat(RunConfig().model_dump(mode="json")))
    for key, value in flat(config.model_dump(mode="json")):
        usual = defaults[key]
        if value != usual and key != "out":
            rows.append((key, _text(value), _text(usual)))
    return rows


def _text(value: object) -> str:
    return "not set" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _without_folders(config: RunConfig) -> RunConfig:
    """Return the configuration with the last part of each path; the rest tells of the machine and its owner."""

    def name(path: Path | None) -> Path | None:
        return None if path is None else Path(path.name)

    return config.model_copy(
        update={
            "out": name(config.out),
            "data": config.data.model_copy(update={"folder": name(config.data.folder)}),
            "paillier": config.paillier.model_copy(update={"key": name(config.paillier.key)}),
        }
    )
