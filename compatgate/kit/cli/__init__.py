"""Provide what commands share; nothing here knows the gate, and all of it loads fast."""
