"""Show what needs attention now, and find things by name."""
