"""Read the log, sign and verify verdicts, back up from the command line."""
