"""What was asked of a run: every setting, its default and domain, job files and overrides, other frameworks' names."""
