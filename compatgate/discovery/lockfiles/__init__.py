"""Read what a project has locked, in any lockfile format, as observations of its stack."""
