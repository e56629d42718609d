"""What differential privacy hides: mechanisms that own both sides, clipping on the client and noise on the sum."""
