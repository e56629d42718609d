"""``000_040aa826a603186f.txt``: a report on differentially private and Paillier-encrypted federated learning."""
