"""Matrix documents: Targets, Entries and Waivers as YAML or JSON, and the core objects they mean.

The way in: `sources` (files, folders, standard input) -> `nodes` (YAML with line numbers) ->
`read` (schema and meaning, every problem at once) -> `specs` (typed documents) -> `convert` (core).
The way out: `write`. Differences: `changes`. No database here.
"""
