"""The sections of a run's report, one a file."""
