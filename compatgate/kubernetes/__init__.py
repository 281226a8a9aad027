"""How the API server of a cluster is asked, by who runs workloads there and by who looks at it."""
