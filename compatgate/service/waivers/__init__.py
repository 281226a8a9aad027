"""Except stacks from rules: named, owned, with an end."""
