"""What encryption hides: protocols that form a sum, each a server half and a client half over frames."""
