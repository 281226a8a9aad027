"""Show facts and rules, and what follows: stacks that pass, causes of errors, what runs where."""
