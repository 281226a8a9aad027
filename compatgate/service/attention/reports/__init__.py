"""Report what happened on a target: changes, questions, answers then and today, runs and nodes."""
