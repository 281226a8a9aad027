"""Show nodes and drive upgrades from the command line."""
