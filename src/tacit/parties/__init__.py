"""How a party answers a request, whoever carries it: its memory, its operator's word, and what it refuses."""
