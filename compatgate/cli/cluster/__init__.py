"""Check manifests and manage a Kubernetes cluster from the command line."""
