"""Keep what metrics are expected to be, in versions that a person approves."""
