"""Federated simulation beside other libraries: what ``tacit bench simulation`` measures and shows."""
