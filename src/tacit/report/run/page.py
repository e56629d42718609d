"""The report of one run as a page."""

from __future__ import annotations

from tacit.modes.catalogue import mode_of
from tacit.report.page import Page
from tacit.report.run import clients, costs, curves, privacy, setup, summary
from tacit.report.run.baseline import Baseline
from tacit.runs.history import History


def run_page(history: History, *, full: bool = False, baseline: Baseline | None = None) -> Page:
    """Return the report of a run, as far as the run got.

    Args:
        history: the run.
        full: show also what may not be passed on: who took part where epsilon counts on nobody knowing it, how
            a user's own data are split and how the model fits them, and whole paths.
        baseline: a plain run that is like it, to stand beside it.
    """
    config, start = history.config, history.start
    sections = [
        summary.section(history, full=full, baseline=baseline),
        curves.section(history, full=full, baseline=baseline),
        privacy.section(history, full=full),
        costs.section(history),
        *(() if history.alone else (clients.section(history, full=full),)),
        setup.configuration(history, full=full),
        setup.environment(history),
        privacy.ledger(history),
    ]
    holder = "one data holder" if history.alone else f"{history.clients:,} clients"
    data = "the user's own data" if history.own_data else start.dataset or config.data.name
    foot = "Made by `tacit report`. This page loads nothing: all it shows is inside it."
    if full:
        foot += " It holds what may not be passed on: it was made with `--full`."
    return Page(
        title=f"Run {history.name}",
        subtitle=f"Mode {config.mode} on {data}, {holder}",
        sections=sections,
        foot=foot,
        banner=banner(history),
    )


def banner(history: History) -> str:
    """Return what has to be known first of a run in which all parties were one program."""
    if not history.one_process:
        return ""
    parties = f"all {history.clients:,} clients and the server"
    if mode_of(history.config.mode).encrypted:
        parties += ", and whoever holds a key,"
    return (
        f"**A simulation of a federation.** In this run {parties} were one program on one machine, and whoever ran it "
        "could read everything. What the page says of who sees what is true of a deployment with these settings."
    )
