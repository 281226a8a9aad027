"""Propose changes of the matrix: review them, approve them as policies require, merge them."""
