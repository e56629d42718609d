"""The sources' own algorithms, written plainly, to be timed beside Tacit's. For comparison only, never for use."""
