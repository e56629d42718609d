"""Engines move bytes between server and clients, and see nothing but bytes."""
