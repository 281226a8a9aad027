"""Evaluate stacks on targets: versions, stacks, targets, facts and rules, without any I/O."""
