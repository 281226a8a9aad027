"""Engine that drives a leased run through its states, from an empty host to judged evidence."""
