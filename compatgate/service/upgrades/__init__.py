"""Carry out upgrades in waves: may the next wave start, and what stops it."""
