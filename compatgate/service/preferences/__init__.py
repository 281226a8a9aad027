"""Let whoever reads pages choose their theme and time zone."""
