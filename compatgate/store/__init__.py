"""What is kept: matrix and its revisions, verdicts and decisions, tokens, the audit chain.

SQLite, embedded, is the default; PostgreSQL by its URL. `database` opens either, `models` are the
tables, every other module is a repository: functions that take a session.
"""
