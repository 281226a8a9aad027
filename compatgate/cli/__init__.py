"""The command line: one small module per sub-command, imported only when it is asked for."""
