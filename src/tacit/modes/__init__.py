"""The modes: how each joins a mechanism and a protocol, which settings it knows, and what may be claimed of it."""
