"""Manage the matrix: targets, entries and waivers as documents, with their history."""
