"""Hold matrix, facts and evidence as one immutable snapshot."""
