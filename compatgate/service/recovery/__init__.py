"""Back up, restore and verify databases, walk the audit chain, and diagnose installations."""
