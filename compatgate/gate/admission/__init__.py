"""Kubernetes objects as questions to the gate, and answers as Kubernetes reads them.

`compatgate.gate.admission.questions` is the way from an object to questions, without I/O;
`compatgate.gate.admission.admit` asks them.
"""
