"""Nodes as they were seen: what witnesses say of each, and what the matrix makes of it.

`compatgate.gate.nodes.witnesses` and `compatgate.gate.nodes.conclude` read reports,
`compatgate.gate.nodes.standing` compares with targets and entries, all without I/O;
`compatgate.gate.nodes.service` keeps them, `compatgate.gate.nodes.looking` shows them.
"""
