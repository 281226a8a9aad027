"""Render verdicts: one module per format or per product."""
