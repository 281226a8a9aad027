"""Canary runs on the database: the queue of workers, what users ask for, and what came of it."""
