"""Provide the parts that pages are made of, for people with a browser."""
