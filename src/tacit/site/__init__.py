"""A site that obeys only itself: its contract, its ledger for life, and the process that holds its data."""
