"""Change and compare the matrix from the command line."""
