"""Show notices that need attention, and search by name."""
