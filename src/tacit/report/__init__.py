"""What people read: a run or a split in, terminal text, HTML or figures out; pure functions."""
