"""Signed verdicts: in-toto statements in DSSE envelopes, made and verified; docs/signing.md.

What is signed is made in `statement` and `summary`, from verdicts that are stored; `envelope`,
`signing` and `public` hand it to securesystemslib, and `verify` says what an envelope is worth.
"""
