"""Show the vendors' facts and the rules of the gate."""
