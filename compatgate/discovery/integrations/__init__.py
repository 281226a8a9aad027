"""Read objects of Kubernetes that describe GPU nodes; see docs/how-to/integrations.md."""
