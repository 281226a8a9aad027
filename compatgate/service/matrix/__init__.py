"""Keep what is blessed where: targets, entries, waivers, with their history."""
