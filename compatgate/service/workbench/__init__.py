"""Create documents of the matrix in the browser, from fields, YAML, files or pasted text."""
