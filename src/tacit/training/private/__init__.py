"""DP-SGD: per-example clipping, real Poisson batches, and noise that nobody can predict."""
