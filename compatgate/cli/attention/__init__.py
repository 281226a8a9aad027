"""List incidents and print reports from the command line."""
