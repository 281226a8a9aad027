"""What commands ask, asked of a gate over REST; one module for each kind of question."""
