"""A round of federated learning: who takes part, what they are asked, how the answers become a new model."""
