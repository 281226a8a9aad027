"""Read lockfiles of any format as observations of a project's stack."""
