"""Bind the results of runs to what ran, and promote or discard them."""
