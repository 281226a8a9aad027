"""Limits on what comes from outside, and the libraries that may be missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec

from compatgate.errors import BadInput
from compatgate.not_json import NOT_JSON

LARGEST_FILE = 64 * 1024 * 1024
"""Bytes; the SPDX document of a CUDA image with every file listed is about 40 MB."""
MOST_PARTS = 200_000
DEEPEST = 100


def library(module: str) -> Any:
    """A module of the ``sbom`` extra.

    Raises:
        BadInput: it is not installed; names the extra.
    """
    try:
        return import_module(module)
    except ImportError:
        hint = "pip install 'compatgate[sbom]'"
        problem = f"reading a bill of materials needs {module.split('.')[0]}"
        raise BadInput(problem, field="sbom", hint=hint) from None


def read_json(text: str, name: str) -> dict[str, Any]:
    """A JSON object, not nested too deeply.

    Raises:
        BadInput: something else.
    """
    try:
        document = msgspec.json.decode(text)
    except NOT_JSON as error:
        raise BadInput(f"is not valid JSON: {error}", field=name) from None
    if not isinstance(document, dict):
        raise BadInput("must be a JSON object", field=name)
    check_depth(document, name)
    return document


def check_depth(document: Any, name: str) -> None:
    """Refuse a document that is nested too deeply for a recursive reader.

    Raises:
        BadInput: it is.
    """
    level, depth = [document], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise BadInput("is nested too deeply", field=name)
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += [v for v in value.values() if isinstance(v, (dict, list))]
            elif isinstance(value, list):
                below += [v for v in value if isinstance(v, (dict, list))]
        level = below


def read_xml(text: str, name: str) -> Any:
    """The root element; documents with a type declaration or entities are refused.

    Raises:
        BadInput: not XML, a type declaration, or nested too deeply.
    """
    parser = library("defusedxml.ElementTree")
    refused = library("defusedxml.common").DefusedXmlException
    try:
        root = parser.fromstring(text.encode(), forbid_dtd=True)
    except refused:
        problem = "declares a document type or entities, which are not read"
        raise BadInput(problem, field=name) from None
    except (parser.ParseError, ValueError, LookupError, RecursionError) as error:
        raise BadInput(f"is not valid XML: {error}", field=name) from None
    level, depth = [root], 0
    while level:
        depth += 1
        if depth > DEEPEST:
            raise BadInput("is nested too deeply", field=name)
        level = [child for element in level for child in element]
    return root
