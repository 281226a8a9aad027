"""Where containers run: one interface, one module per kind of executor."""
