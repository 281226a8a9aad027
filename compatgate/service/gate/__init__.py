"""Answer whether a stack may run, and what a change would do."""
