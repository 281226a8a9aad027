"""Carry out upgrades in waves: decide whether the next wave may start, and list what holds it."""
