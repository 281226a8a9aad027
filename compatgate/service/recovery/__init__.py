"""Back up, verify and repair the whole of the stored state."""
