"""Join the fields and the YAML of one form into one document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from typing import Any

from msgspec import Struct

from compatgate.documents.edits import merge_into_text
from compatgate.documents.sources import Problems, Source
from compatgate.documents.specs import API_VERSION, Kind
from compatgate.documents.text import RawDocument, read_nodes, to_yaml
from compatgate.errors import BadInput, ManyProblems
from compatgate.service.workbench.form_fields import Body, show_fields, write_fields

FILE = "YAML"
"""Name of the text in errors."""


class EditedDocument(Struct, frozen=True):
    """A document under edit.

    Attributes:
        text: its YAML, as typed but for the values that a changed field wrote.
        document: plain data, not checked.
        rewritten: a changed field did not fit into the text, which lost its comments.
    """

    text: str
    document: Body
    rewritten: bool = False


def start_document(kind: Kind) -> Body:
    """Return the document that a new form begins with."""
    if kind == "Entry":
        return make_document(kind, {}, {"status": "candidate"})
    if kind == "Waiver":
        return make_document(kind, {}, {})
    return make_document(kind, {}, {"policy": {"mode": "enforce", "onUnknown": "fail"}})


def make_document(kind: Kind, metadata: Body, spec: Body) -> Body:
    """Return a document of a kind."""
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def edit_document(kind: Kind, form: Mapping[str, str], most_values: int) -> EditedDocument:
    """Return the document that a form describes.

    The YAML decides, but for fields that were changed since the form was shown. Comments and order
    of the YAML stay. A form without YAML has fields alone.

    Args:
        kind: of the document.
        form: ``documents``, the YAML; ``shown``, the YAML that the fields were filled from; and
            the fields of `list_fields`.
        most_values: values that a text may hold.

    Raises:
        ManyProblems: the YAML cannot be read.
        BadInput: the YAML is not one document, or a field does not fit.
    """
    text = form.get("documents", "").replace("\r\n", "\n")
    before = _read_document(text, most_values) if text.strip() else start_document(kind)
    shown = start_document(kind)
    if "documents" in form:
        with suppress(BadInput, ManyProblems):
            shown = _read_document(form.get("shown", "").replace("\r\n", "\n"), most_values)
    document = deepcopy(before)
    changed = write_fields(kind, document, shown, form)
    if not text.strip():
        return EditedDocument(to_yaml([document]), document)
    edited = EditedDocument(text, before)
    return write_text(edited, document) if changed else edited


def write_text(edited: EditedDocument, after: Body) -> EditedDocument:
    """Return a document with other data; its text differs only where the data differs."""
    merged = merge_into_text(edited.text, edited.document, after)
    if merged is not None:
        with suppress(BadInput, ManyProblems):  # rather lose the comments than what was typed
            if _read_document(merged, None) == after:
                return EditedDocument(merged, after, edited.rewritten)
    return EditedDocument(to_yaml([after]), after, edited.rewritten or "#" in edited.text)


def replace_pools(edited: EditedDocument, pools: Sequence[Body]) -> EditedDocument:
    """Return the document of a target with other pools."""
    spec = edited.document.get("spec")
    others = spec if isinstance(spec, dict) else {}
    document = {**edited.document, "spec": {"pools": list(pools), **_without_pools(others)}}
    return write_text(edited, document)


def _without_pools(spec: Body) -> Body:
    return {key: value for key, value in spec.items() if key != "pools"}


def show_form(kind: Kind, edited: EditedDocument) -> dict[str, str]:
    """Return what a form shows of a document: its fields and its YAML."""
    return {
        **show_fields(kind, edited.document),
        "documents": edited.text,
        "shown": to_yaml([edited.document]),
    }


def _read_document(text: str, most_values: int | None) -> Body:
    """Read one YAML document as plain data; numbers with a point stay as written.

    Raises:
        ManyProblems: the text is not YAML.
        BadInput: the text is not one mapping.
    """
    problems = Problems()
    found = list(read_nodes(Source(FILE, text, most_values), problems))
    problems.raise_if_any()
    if len(found) != 1 or not isinstance(found[0].value, dict):
        hint = "import several documents on the page Import"
        raise BadInput("must contain exactly one document", field=FILE, hint=hint)
    value: Body = _keep_written(found[0], found[0].value, ())
    return value


def _keep_written(raw: RawDocument, value: Any, path: tuple[str | int, ...]) -> Any:
    """Return a value without floats: the version 550.10 is not the number 550.1."""
    if isinstance(value, dict):
        return {key: _keep_written(raw, one, (*path, key)) for key, one in value.items()}
    if isinstance(value, list):
        return [_keep_written(raw, one, (*path, at)) for at, one in enumerate(value)]
    if isinstance(value, float):
        return raw.written(path) or str(value)
    return value
