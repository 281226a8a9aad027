"""Back up, restore and verify databases, and find what is wrong with an installation."""
