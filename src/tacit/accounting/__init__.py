"""What was released and what it cost: events, the ledger of a run, accountants, and noise for a budget."""
