"""Describe the places to run: targets, their pools and policies."""
