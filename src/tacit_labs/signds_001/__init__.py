"""MindSpore Federated's example of SignDS with LeNet."""
