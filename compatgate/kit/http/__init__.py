"""Read requests, write answers and keep connections; this package knows nothing of the gate."""
