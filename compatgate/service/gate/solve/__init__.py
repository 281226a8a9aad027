"""Answer over REST which newest stacks pass."""
