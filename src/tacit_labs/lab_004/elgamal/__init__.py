"""The lab on ElGamal: checks, times and safe primes."""
