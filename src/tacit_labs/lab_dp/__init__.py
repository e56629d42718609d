"""The lab on differential privacy: noise in federated learning, its surfaces and the epsilon that holds."""
