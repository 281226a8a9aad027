"""Compare two worlds: what a change of drivers, stacks, matrix or facts does to all in use."""
