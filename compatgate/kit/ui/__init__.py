"""Provide the parts of HTML pages: tables, filters, styles and scripts."""
