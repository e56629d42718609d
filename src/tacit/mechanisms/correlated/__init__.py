"""Correlated noise: what later rounds take back of earlier rounds' noise, so that less of it is left in the model."""
