"""Claims attacked: worst cases in place of training, and the lower bound on epsilon that follows from what is seen."""
