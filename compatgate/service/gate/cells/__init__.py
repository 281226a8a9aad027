"""Evaluate every entry on every target: what runs where."""
