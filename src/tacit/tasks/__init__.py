"""What there is to learn: data sets and their sources, how clients share them, and models."""
