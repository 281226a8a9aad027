"""Say who asks and what they may do: tokens, people, jobs."""
