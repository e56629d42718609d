"""The report 004: DP-SGD on breast cancer, and ElGamal."""
