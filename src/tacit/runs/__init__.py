"""A run: its configuration, its folder, and the loop over rounds."""
