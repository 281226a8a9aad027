"""Keep the hash-chained log of changes, and sign verdicts; docs/how-to/signing.md.

`statement` makes the signed content from stored verdicts; `envelope` hands it to securesystemslib
with the keys of `keys`, and verifies envelopes.
"""
