"""What all experiments share: what an experiment is, how it is measured, shown and written down."""
