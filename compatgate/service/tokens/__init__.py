"""Hand out tokens, check what each allows, and sign browsers in."""
