"""The DP-SGD lab: private logistic regression on breast cancer, and what its accounting left on the table."""
