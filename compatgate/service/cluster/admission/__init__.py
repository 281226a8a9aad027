"""Decide whether Kubernetes may create a GPU pod.

`questions` turns an object into questions to the gate, without I/O; `service` asks them;
`review` reads and answers in Kubernetes' form.
"""
