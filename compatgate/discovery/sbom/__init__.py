"""Read software bills of materials as observations of a stack, and write one of an inspection."""
