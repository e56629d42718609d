"""The lab on Paillier: checks, times and encrypted learning."""
