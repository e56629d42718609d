"""Many runs: grids and comparisons, each run in a folder of its own."""
