"""Unwrap a bill of materials that is the predicate of an in-toto statement.

``cosign attest --type spdxjson`` signs a DSSE envelope around a statement whose predicate is the
document; BuildKit and ``syft attest`` write the statement, and Sigstore's bundles hold the
envelope. Signatures are not checked here: the document counts as one that was given plainly.

Sources: in-toto/attestation ``spec/v1/statement.md`` and ``spec/predicates/{spdx,cyclonedx}.md``;
secure-systems-lab/dsse ``envelope.md``; sigstore/protobuf-specs ``sigstore_bundle.proto``;
sigstore/cosign ``specs/COSIGN_PREDICATE_SPEC.md`` (``Data`` of older predicates).
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import Any

from compatgate.discovery.sbom.interface import Bill, Reader, read_json
from compatgate.errors import BadInput

_STATEMENT = re.compile(r'"_type"\s*:\s*"https://in-toto\.io/Statement/')
_ENVELOPE = re.compile(r'"payloadType"\s*:')
_STATEMENT_TYPE = "https://in-toto.io/Statement/"
_PAYLOAD_TYPES = ("application/vnd.in-toto+json", "application/vnd.in-toto.v1+json")
_PREDICATES = ("https://spdx.dev/Document", "https://cyclonedx.org/bom")
_MAX_LINES = 200
_HINT = f"give one statement with a predicate of {' or '.join(_PREDICATES)}"


class InTotoStatement:
    """An in-toto statement about an SPDX or CycloneDX document, bare or in an envelope.

    Args:
        readers: readers of the documents.
    """

    def __init__(self, readers: tuple[Reader, ...]) -> None:
        self._readers = readers

    def recognises(self, text: str) -> bool:
        """Look for the type of a statement, or of an envelope's payload."""
        if text.lstrip()[:1] != "{":
            return False
        enveloped = _ENVELOPE.search(text) and not any(r.recognises(text) for r in self._readers)
        return bool(enveloped or _STATEMENT.search(text))

    def read(self, text: str, name: str) -> Bill:
        """Return the parts of the one bill of materials among the statements of the text.

        Raises:
            BadInput: the text is malformed, or none or several of its statements are about one.
        """
        statements = [_statement(one, name) for one in _documents(text, name)]
        found = [one for one in statements if _is_bill(one)]
        if len(found) != 1:
            stated = dict.fromkeys(str(one.get("predicateType"))[:100] for one in statements)
            kinds = ", ".join(stated) or "none"
            many = "several bills of materials" if found else f"only the predicates {kinds}"
            raise BadInput(f"attests {many}", field=name, hint=_HINT)
        document = _predicate_text(found[0].get("predicate"), name)
        reader = next((one for one in self._readers if one.recognises(document)), None)
        if reader is None:
            kind = found[0]["predicateType"]
            problem = f"has a predicate {kind} that is neither SPDX nor CycloneDX"
            raise BadInput(problem, field=f"{name}: predicate", hint=_HINT)
        return reader.read(document, f"{name}: predicate")


def _documents(text: str, name: str) -> list[dict[str, Any]]:
    """Return the one document, or one for each line, as ``cosign download attestation`` prints."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines[:2]):
        return [read_json(text, name)]
    if not lines[0].rstrip().endswith("}"):
        return [read_json(text, name)]
    if len(lines) > _MAX_LINES:
        raise BadInput(f"has more than {_MAX_LINES} attestations", field=name, hint=_HINT)
    return [read_json(line, f"{name}:{number}") for number, line in enumerate(lines, 1)]


def _statement(document: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the statement of a document: a bundle, an envelope, or the statement itself."""
    envelope = document.get("dsseEnvelope", document)
    if not isinstance(envelope, dict):
        raise BadInput("must be an object", field=f"{name}: dsseEnvelope")
    if "payloadType" not in envelope:
        return _checked(envelope, name)
    if envelope["payloadType"] not in _PAYLOAD_TYPES:
        problem = f"is an envelope of {str(envelope['payloadType'])[:100]}, not of in-toto"
        raise BadInput(problem, field=f"{name}: payloadType", hint=_HINT)
    try:
        payload = base64.b64decode(str(envelope.get("payload")), validate=True).decode()
    except (binascii.Error, ValueError):
        raise BadInput("is not base64 of text", field=f"{name}: payload") from None
    return _checked(read_json(payload, f"{name}: payload"), name)


def _checked(statement: dict[str, Any], name: str) -> dict[str, Any]:
    if not str(statement.get("_type")).startswith(_STATEMENT_TYPE):
        raise BadInput("is not an in-toto statement", field=f"{name}: _type", hint=_HINT)
    return statement


def _is_bill(statement: dict[str, Any]) -> bool:
    return str(statement.get("predicateType")).startswith(_PREDICATES)


def _predicate_text(predicate: Any, name: str) -> str:
    """Return the document as text; older statements have it in ``Data``, tag-value as a string."""
    if isinstance(predicate, dict) and "Data" in predicate:
        predicate = predicate["Data"]
    if isinstance(predicate, str):
        return predicate
    if not isinstance(predicate, dict):
        raise BadInput("must be a document", field=f"{name}: predicate", hint=_HINT)
    return json.dumps(predicate)
