"""Work out what a change would do, and carry it out: comparisons, proposals, upgrades."""
