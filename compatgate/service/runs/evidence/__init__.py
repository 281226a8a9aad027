"""Bind results of runs to what ran, promote or discard them, and learn baselines from them."""
