"""Witness of an execution from outside, so that an image cannot write its own evidence.

docs/explanation/witnesses.md says what remains possible.
"""
