"""Find what a text means: a question, an object's name or id, or an error."""
