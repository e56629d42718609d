"""Runs in other people's dashboards: TensorBoard and MLflow.

A log gets numbers by round, settings and texts; no data, no key and nothing of a single client. It is written behind
the run's back: one that fails or hangs costs the run a note and nothing else.
"""
