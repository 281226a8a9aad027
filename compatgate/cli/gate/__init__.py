"""Ask a gate from the command line: plans, comparisons, bundles."""
