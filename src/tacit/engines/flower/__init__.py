"""Flower as an engine: frames travel in its messages, and nothing here looks inside them."""

from tacit.engines.flower.app import Answer, Call, Handler, client_app
from tacit.engines.flower.engine import FlowerEngine

__all__ = ["Answer", "Call", "FlowerEngine", "Handler", "client_app"]
