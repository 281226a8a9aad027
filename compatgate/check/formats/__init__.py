"""Render verdicts: one module for each format, or for the formats of one product."""
