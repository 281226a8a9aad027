"""Run and judge canaries from the command line."""
