"""Show what needs a person: incidents and reports."""
