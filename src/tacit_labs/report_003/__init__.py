"""``003_80a3edf6a6b18d18.txt``: a report on differential privacy and Paillier in federated learning, in Chinese."""
