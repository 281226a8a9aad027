"""Name the causes of a pasted error, and check a stack for them."""
