"""Keep the hash-chained log of changes, and sign verdicts; docs/how-to/signing.md.

`statement` makes the signed content from stored verdicts; `envelope` and `keys` hand it to
securesystemslib; `envelope` also verifies. `sigstore` writes and reads Sigstore bundles.
"""
