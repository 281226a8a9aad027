"""The service that binds facts, matrix and evidence into answers, and remembers what it said."""
