"""Open a database, prepare its schema, and page through its tables.

SQLite, embedded, is the default; PostgreSQL by its URL. What is stored belongs to the
capabilities in `compatgate.service`: each has its tables and the functions that read and write
them, which take a session.
"""
