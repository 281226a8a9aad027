"""Manage tokens and sign in from the command line."""
