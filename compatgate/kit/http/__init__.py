"""Read requests, write answers and keep connections; nothing here knows the gate."""
