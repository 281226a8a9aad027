"""Decide what a cluster may start: pods, rollouts, manifests.

`questions` turns an object into questions to the gate, without I/O; `admission` asks them; `review`
reads and answers in Kubernetes' form. Of rendered manifests, `manifests` reads YAML or JSON, each
object with its lines, `manifest_checks` asks as admission would decide, and `manifest_reports`
shows findings at lines of the files.
"""
