"""The pages: the matrix, questions, runs and records, for people with a browser."""
