"""Provide what capabilities share: database, HTTP, pages, commands, Kubernetes."""
