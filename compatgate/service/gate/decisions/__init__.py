"""Log decisions: database, spool during outages, delivery."""
