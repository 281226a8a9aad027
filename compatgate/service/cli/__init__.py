"""Reach the gate that a command asks, on a server or in the local database."""
