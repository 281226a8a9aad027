"""Read SPDX 2.x in JSON, YAML, XML and tag-value through ``spdx-tools``.

Source: https://spdx.github.io/spdx-spec/v2.3/. SPDX 3 is refused: the library cannot read it.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable
from typing import Any

from compatgate.discovery.lockfiles.text import read_yaml
from compatgate.discovery.sbom.interface import (
    MOST_PARTS,
    Bill,
    Part,
    import_library,
    may_be_component,
    read_json,
    read_xml,
)
from compatgate.errors import BadInput

_JSON = re.compile(r'"spdxVersion"\s*:\s*"SPDX-2\.|"SPDXID"\s*:')
_SPDX3 = re.compile(r'"@context"\s*:[^,]*spdx\.org/rdf/3')
_YAML = re.compile(r"""^["']?(?:spdxVersion|SPDXID)["']?\s*:""", re.MULTILINE)
_XML = (re.compile(r"<Document\b"), re.compile(r"<(?:spdxVersion|SPDXID)>"))
_TAG_VALUE = re.compile(r"^SPDXVersion:\s*SPDX-", re.MULTILINE)
_ABOUT = ("spdxVersion", "SPDXID", "name", "dataLicense", "documentNamespace", "creationInfo")
_KEPT = ("SPDXID", "name", "versionInfo", "downloadLocation", "externalRefs")
"""Fields of a package that are read; errors in files, relationships and licences do not matter."""


class SpdxJson:
    """An SPDX document in JSON."""

    def recognises(self, text: str) -> bool:
        """Look for SPDX's version or identifiers, version 3 included: `read` refuses it by name."""
        return text.lstrip()[:1] == "{" and bool(_JSON.search(text) or _SPDX3.search(text[:50_000]))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        if _SPDX3.search(text[:50_000]):
            hint = "write SPDX 2.3 or CycloneDX"
            raise BadInput("is SPDX 3, which is not supported", field=name, hint=hint)
        return _from_dict(read_json(text, name), name)


class SpdxYaml:
    """An SPDX document in YAML."""

    def recognises(self, text: str) -> bool:
        """Look for SPDX's version or identifier at the top level."""
        return text.lstrip()[:1] not in ("{", "<") and bool(_YAML.search(text))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        document = read_yaml(text, name)
        if not isinstance(document, dict):
            raise BadInput("is not an SPDX document", field=name)
        return _from_dict(document, name)


class SpdxXml:
    """An SPDX document in XML."""

    def recognises(self, text: str) -> bool:
        """Look for a ``Document`` element with SPDX's version or identifier."""
        return text.lstrip()[:1] == "<" and all(x.search(text) for x in _XML)

    def read(self, text: str, name: str) -> Bill:
        """Return every package, through a temporary file, as the library reads files only."""
        read_xml(text, name)
        parser = import_library("spdx_tools.spdx.parser.xml.xml_parser")
        descriptor, path = tempfile.mkstemp(suffix=".spdx.xml")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            return _bill(lambda: parser.parse_from_file(path), name)
        finally:
            os.unlink(path)


class SpdxTagValue:
    """An SPDX document as tags and values."""

    def recognises(self, text: str) -> bool:
        """Look for the tag of SPDX's version."""
        return bool(_TAG_VALUE.search(text[:100_000]))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        parser = import_library("spdx_tools.spdx.parser.tagvalue.parser")
        return _bill(lambda: parser.Parser().parse(text), name)


def _from_dict(document: dict[str, Any], name: str) -> Bill:
    parser = import_library("spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser")
    packages = document.get("packages", [])
    if not isinstance(packages, list) or not all(isinstance(item, dict) for item in packages):
        raise BadInput("must be a list of packages", field=f"{name}: packages")
    kept = {key: document[key] for key in _ABOUT if key in document}
    kept["packages"] = [
        {key: package[key] for key in _KEPT if key in package}
        for package in packages
        if may_be_component(package.get("name"), str(package.get("externalRefs")))
    ]
    bill = _bill(lambda: parser.JsonLikeDictParser().parse(kept), name)
    return Bill(bill.format, bill.parts, bool(packages))


def _bill(parse: Callable[[], Any], name: str) -> Bill:
    """Return the packages of a parsed document."""
    error_class = import_library("spdx_tools.spdx.parser.error").SPDXParsingError
    try:
        document = parse()
        parts = tuple(map(_part, document.packages))
        version = str(document.creation_info.spdx_version).replace("-", " ")
    except error_class as error:
        problem = f"is not an SPDX document: {'; '.join(error.get_messages())[:300]}"
        raise BadInput(problem, field=name) from None
    except Exception as error:  # the library raises errors of many types for malformed documents
        problem = f"is not an SPDX document: {type(error).__name__}: {str(error)[:200]}"
        raise BadInput(problem, field=name) from None
    if len(parts) > MOST_PARTS:
        raise BadInput(f"has more than {MOST_PARTS} packages", field=name)
    return Bill(version, parts, bool(parts))


def _part(package: Any) -> Part:
    purls = [r.locator for r in package.external_references if r.reference_type == "purl"]
    version = package.version or ""
    return Part(package.spdx_id, package.name, version, purls[0] if purls else "")
