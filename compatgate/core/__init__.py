"""The pure core: versions, stacks, targets, facts, rules and the evaluation. No I/O."""
