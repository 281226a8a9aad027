"""Keep the preferences of people: how pages look, and their views of lists."""
