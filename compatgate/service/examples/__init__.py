"""Load an example fleet into an empty gate, and remove exactly that again."""
