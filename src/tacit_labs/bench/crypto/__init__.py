"""Encryption beside other libraries: what ``tacit bench crypto`` measures and shows."""
