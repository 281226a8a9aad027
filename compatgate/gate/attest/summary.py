"""A stored verdict as a SLSA verification summary.

Source: slsa.dev ``spec/v1.0/verification_summary``: levels of one's own may be used, and extension
fields whose names are URIs.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from compatgate.gate.attest.statement import (
    PREDICATE_TYPE,
    Predicate,
    Vouched,
    plain,
    statement,
)
from compatgate.gate.attest.subjects import digest_of, image_name

SUMMARY_TYPE = "https://slsa.dev/verification_summary/v1"
ANY_GATE = "https://compatgate.dev/gate"
"""Who verified, where the operator names no public address."""
_HOLDS = {"pass": "COMPATGATE_PASS", "warn": "COMPATGATE_WARN"}


def summary_of(about: Vouched, verifier: str) -> dict[str, Any]:
    """The statement with SLSA's predicate; our own is in it, as an extension.

    What is not known did not pass, whatever the target's mode lets in: whoever reads a summary sees
    two results only.

    Args:
        about: what is vouched for.
        verifier: URI of the gate.
    """
    predicate = about.predicate
    level = _HOLDS.get(predicate.verdict)
    at = {"matrixRevision": predicate.matrix_revision, "target": predicate.target}
    whole = plain(predicate)
    return statement(
        about.subject,
        SUMMARY_TYPE,
        {
            "verifier": {"id": verifier},
            "timeVerified": whole["confirmedAt"],
            "resourceUri": _resource(about),
            "policy": {"uri": _policy(predicate, verifier), "digest": digest_of(at)},
            "verificationResult": "PASSED" if level else "FAILED",
            "verifiedLevels": [level or "FAILED"],
            "slsaVersion": "1.0",
            PREDICATE_TYPE: whole,
        },
    )


def _resource(about: Vouched) -> str:
    """The image as a package URL, or the stack by its digest."""
    image = about.predicate.image
    (algorithm, digits), *_ = about.subject.digest.items()
    if not (image and image.read and image.digest):
        return f"https://compatgate.dev/stacks/{algorithm}:{digits}"
    name = image_name(image.reference)
    version = quote(f"{algorithm}:{digits}", safe="")
    return f"pkg:oci/{name.rpartition('/')[2]}@{version}?repository_url={quote(name, safe='/:')}"


def _policy(predicate: Predicate, verifier: str) -> str:
    if predicate.target is None:
        return f"{verifier}/api/v1/facts"
    return f"{verifier}/api/v1/targets/{quote(predicate.target, safe='')}"
