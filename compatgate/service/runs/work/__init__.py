"""Hand runs to workers over REST: a worker holds a token for one host, and no database."""
