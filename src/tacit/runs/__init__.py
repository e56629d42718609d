"""A run: its folder, its journal, and the loop over rounds."""
