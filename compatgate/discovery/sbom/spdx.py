"""Read SPDX: 2.x in JSON, YAML, XML and tag-value, and 3.0 in JSON-LD.

``spdx-tools`` checks and reads packages of SPDX 2.x. It gets only what the stack needs: names,
versions and package URLs, with a creation time of its own, as it takes one form of time alone and
tools write several. Tag-value text is read line by line, since the library stops at the first tag
that it does not expect. SPDX 3.0, which the library cannot read, is plain JSON with fixed names:
the specification fixes its context.

Sources: https://spdx.github.io/spdx-spec/v2.3/ ("Composition of an SPDX document", "Tag:value
format"), https://spdx.github.io/spdx-spec/v3.0.1/ (``Software/Package``,
``Core/ExternalIdentifier`` and the serialisation in JSON-LD).
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

from compatgate.discovery.lockfiles.text import read_yaml
from compatgate.discovery.sbom.interface import (
    MAX_PARTS,
    Bill,
    Part,
    component_filter,
    import_library,
    read_json,
    read_xml,
)
from compatgate.errors import BadInput, quote_error

_SPDX_JSON = re.compile(r'"spdxVersion"\s*:\s*"SPDX-2\.|"SPDXID"\s*:')
_SPDX3 = re.compile(r'"@context"\s*:[^,]*spdx\.org/rdf/3')
_SPDX_YAML = re.compile(r"""^["']?(?:spdxVersion|SPDXID)["']?\s*:""", re.MULTILINE)
_SPDX_XML = (re.compile(r"<Document\b"), re.compile(r"<(?:spdxVersion|SPDXID)>"))
_SPDX_TAG_VALUE = re.compile(r"^SPDXVersion:\s*SPDX-", re.MULTILINE)
_SPDX_DOCUMENT_KEYS = (
    "spdxVersion",
    "SPDXID",
    "name",
    "dataLicense",
    "documentNamespace",
    "creationInfo",
)
_SPDX_KEYS = ("SPDXID", "name", "versionInfo", "downloadLocation", "externalRefs")
"""Fields of a package that are read; errors in files, relationships and licences do not matter."""
_ANY_TIME = "1970-01-01T00:00:00Z"
_XML_TIME = re.compile(r"(<created>)[^<>]*(</created>)")


class SpdxJson:
    """An SPDX 2.x document in JSON."""

    def recognises(self, text: str) -> bool:
        """Look for SPDX's version or identifiers."""
        return text.lstrip()[:1] == "{" and bool(_SPDX_JSON.search(text))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        return _spdx_from_dict(read_json(text, name), name)


class SpdxYaml:
    """An SPDX document in YAML."""

    def recognises(self, text: str) -> bool:
        """Look for SPDX's version or identifier at the top level."""
        return text.lstrip()[:1] not in ("{", "<") and bool(_SPDX_YAML.search(text))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        document = read_yaml(text, name)
        if not isinstance(document, dict):
            raise BadInput("is not an SPDX document", field=name)
        return _spdx_from_dict(document, name)


class SpdxXml:
    """An SPDX document in XML."""

    def recognises(self, text: str) -> bool:
        """Look for a ``Document`` element with SPDX's version or identifier."""
        return text.lstrip()[:1] == "<" and all(x.search(text) for x in _SPDX_XML)

    def read(self, text: str, name: str) -> Bill:
        """Return every package, through a temporary file, as the library reads files only."""
        read_xml(text, name)
        parser = import_library("spdx_tools.spdx.parser.xml.xml_parser")
        descriptor, path = tempfile.mkstemp(suffix=".spdx.xml")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(_XML_TIME.sub(rf"\g<1>{_ANY_TIME}\g<2>", text))
            return _spdx_bill(lambda: parser.parse_from_file(path), name)
        finally:
            os.unlink(path)


class SpdxTagValue:
    """An SPDX document as tags and values."""

    def recognises(self, text: str) -> bool:
        """Look for the tag of SPDX's version."""
        return bool(_SPDX_TAG_VALUE.search(text[:100_000]))

    def read(self, text: str, name: str) -> Bill:
        """Return every package."""
        return _spdx_from_dict(_read_tags(text, name), name)


_DOCUMENT_TAGS = {
    "SPDXVersion": "spdxVersion",
    "DataLicense": "dataLicense",
    "DocumentName": "name",
    "DocumentNamespace": "documentNamespace",
}
_PACKAGE_TAGS = {
    "SPDXID": "SPDXID",
    "PackageVersion": "versionInfo",
    "PackageDownloadLocation": "downloadLocation",
}
_SECTION_TAGS = ("FileName", "SnippetSPDXID", "LicenseID", "Relationship", "Annotator", "Reviewer")
"""Tags after which an identifier is no package's."""
_TAG = re.compile(r"([A-Za-z][A-Za-z0-9]*):[ \t]*(.*)")
_TEXT, _TEXT_END = "<text>", "</text>"


def _read_tags(text: str, name: str) -> dict[str, Any]:
    """Return the document of tag-value text in the form of SPDX's JSON.

    Raises:
        BadInput: a line is no tag with a value; the field ends with its number.
    """
    document: dict[str, Any] = {"packages": [], "creationInfo": {"creators": []}}
    package: dict[str, Any] | None = None
    section = False
    for tag, value in _tags(text, name):
        if tag == "PackageName":
            package, section = {"name": value, "externalRefs": []}, False
            document["packages"].append(package)
        elif tag in _SECTION_TAGS:
            section = True
        elif tag == "Creator":
            document["creationInfo"]["creators"].append(value)
        elif tag in _DOCUMENT_TAGS:
            document[_DOCUMENT_TAGS[tag]] = value
        elif package is None and tag == "SPDXID" and not section:
            document["SPDXID"] = value
        elif package is not None and not section and tag in _PACKAGE_TAGS:
            package[_PACKAGE_TAGS[tag]] = value
        elif package is not None and not section and tag == "ExternalRef":
            category, kind, locator = (*value.split(None, 2), "", "", "")[:3]
            reference = (category, kind, locator.strip())
            package["externalRefs"].append(dict(zip(_REFERENCE_KEYS, reference, strict=True)))
    return document


_REFERENCE_KEYS = ("referenceCategory", "referenceType", "referenceLocator")


def _tags(text: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield tags and values; comments, blank lines and the rest of ``<text>`` are no tags."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if inside:
            inside = _TEXT_END not in line
            continue
        stated = line.strip()
        if not stated or stated.startswith("#"):
            continue
        match = _TAG.fullmatch(stated)
        if match is None:
            hint = "each line is a tag, a colon and a value"
            raise BadInput("is not a line of tag-value SPDX", field=f"{name}:{number}", hint=hint)
        tag, value = match[1], match[2].strip()
        if value.startswith(_TEXT):
            inside = _TEXT_END not in value
            value = value.removeprefix(_TEXT).partition(_TEXT_END)[0]
        yield tag, value
    if inside:
        raise BadInput("ends within <text>", field=name, hint="the document is truncated")


def _spdx_from_dict(document: dict[str, Any], name: str) -> Bill:
    parser = import_library("spdx_tools.spdx.parser.jsonlikedict.json_like_dict_parser")
    packages = document.get("packages", [])
    if not isinstance(packages, list) or not all(isinstance(item, dict) for item in packages):
        raise BadInput("must be a list of packages", field=f"{name}: packages")
    kept = {key: document[key] for key in _SPDX_DOCUMENT_KEYS if key in document}
    if isinstance(kept.get("creationInfo"), dict):
        creators = kept["creationInfo"].get("creators", [])
        kept["creationInfo"] = {"created": _ANY_TIME, "creators": creators}
    kept["packages"] = [
        _package_fields(package)
        for package in packages
        if component_filter(package.get("name"), str(package.get("externalRefs")))
    ]
    bill = _spdx_bill(lambda: parser.JsonLikeDictParser().parse(kept), name)
    return Bill(bill.format, bill.parts, bool(packages))


def _package_fields(package: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that are read; of references the package URLs alone."""
    kept = {key: package[key] for key in _SPDX_KEYS if key in package}
    references = kept.get("externalRefs")
    if isinstance(references, list):
        kept["externalRefs"] = [
            one
            for one in references
            if not isinstance(one, dict) or one.get("referenceType", "purl") == "purl"
        ]
    return kept


def _spdx_bill(parse: Callable[[], Any], name: str) -> Bill:
    """Return the packages of a parsed document."""
    error_class = import_library("spdx_tools.spdx.parser.error").SPDXParsingError
    try:
        document = parse()
        parts = tuple(map(_spdx_part, document.packages))
        version = str(document.creation_info.spdx_version).replace("-", " ")
    except error_class as error:
        problem = f"is not an SPDX document: {quote_error('; '.join(error.get_messages()))}"
        raise BadInput(problem, field=name) from None
    except Exception as error:  # the library raises errors of many types for malformed documents
        problem = f"is not an SPDX document: {type(error).__name__}: {quote_error(error)}"
        raise BadInput(problem, field=name) from None
    if len(parts) > MAX_PARTS:
        raise BadInput(f"has more than {MAX_PARTS} packages", field=name)
    return Bill(version, parts, bool(parts))


def _spdx_part(package: Any) -> Part:
    purls = [r.locator for r in package.external_references if r.reference_type == "purl"]
    version = package.version or ""
    return Part(package.spdx_id, package.name, version, purls[0] if purls else "")


_SPDX3_PACKAGES = ("software_Package", "ai_AIPackage")
_SPDX3_VERSION = re.compile(r"spdx\.org/rdf/(3\.\d+(?:\.\d+)?)/")
_READ_SPDX3 = ("3.0", "3.0.0", "3.0.1")


class Spdx3:
    """An SPDX 3.0 document in JSON-LD."""

    def recognises(self, text: str) -> bool:
        """Look for SPDX 3's context; `read` refuses versions that are not known by name."""
        return text.lstrip()[:1] == "{" and bool(_SPDX3.search(text[:50_000]))

    def read(self, text: str, name: str) -> Bill:
        """Return every package.

        Raises:
            BadInput: the version of SPDX is not 3.0, or the document has no list of elements.
        """
        document = read_json(text, name)
        match = _SPDX3_VERSION.search(str(document.get("@context"))[:2000])
        if match is None or match[1] not in _READ_SPDX3:
            shown = f"SPDX {match[1]}" if match else "SPDX 3 of an unknown version"
            hint = "write SPDX 3.0, SPDX 2.3 or CycloneDX"
            raise BadInput(f"is {shown}, which is not supported", field=name, hint=hint)
        elements = document.get("@graph", [document])
        if not isinstance(elements, list) or not all(isinstance(one, dict) for one in elements):
            raise BadInput("must be a list of elements", field=f"{name}: @graph")
        if len(elements) > MAX_PARTS * 5:
            raise BadInput(f"has more than {MAX_PARTS * 5} elements", field=name)
        packages = [one for one in elements if one.get("type") in _SPDX3_PACKAGES]
        if len(packages) > MAX_PARTS:
            raise BadInput(f"has more than {MAX_PARTS} packages", field=name)
        parts = (_spdx3_part(one, name) for one in packages)
        kept = tuple(part for part in parts if component_filter(part.name, part.purl))
        return Bill(f"SPDX {match[1]}", kept, bool(packages))


def _spdx3_part(element: dict[str, Any], name: str) -> Part:
    identifiers = element.get("externalIdentifier")
    purls = [
        one.get("identifier")
        for one in (identifiers if isinstance(identifiers, list) else ())
        if isinstance(one, dict) and one.get("externalIdentifierType") == "packageUrl"
    ]
    texts = {
        "spdxId": element.get("spdxId", element.get("@id", "")),
        "name": element.get("name", ""),
        "software_packageVersion": element.get("software_packageVersion", ""),
        "software_packageUrl": element.get("software_packageUrl") or (purls or [""])[0],
    }
    for key, value in texts.items():
        if not isinstance(value, str):
            raise BadInput("must be text", field=f"{name}: {key}", value=value)
    return Part(*texts.values())
