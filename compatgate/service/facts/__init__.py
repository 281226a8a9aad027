"""Show what the vendors publish and the rules that the gate makes of it."""
