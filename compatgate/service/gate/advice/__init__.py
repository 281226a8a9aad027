"""Advise over REST: which newest stacks pass, and what caused an error."""
