"""Protection for a Flower app that is there already: a strategy around its strategy, and a mod beside its clients."""
