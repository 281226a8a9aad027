"""Provide the kit of all commands; it is independent of the gate and loads fast."""
