"""Create tokens, check their scopes, and sign browsers in."""
