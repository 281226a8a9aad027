"""Check rendered Kubernetes manifests before a cluster sees them, as admission would decide.

Reading: `documents` (YAML or JSON, each object with its lines) -> `service` (admission's answer for
one object, from a gate or a bundle, or over REST) -> `reports` (findings at lines of the files).
"""
