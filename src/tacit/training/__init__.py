"""Local training, alone and for a whole cohort at once; the only room that computes gradients."""
