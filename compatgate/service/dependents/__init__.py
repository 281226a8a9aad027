"""Tell who depends on an entry: recorded questions, nodes, targets and other entries."""
