"""Say which sync a document belongs to: a label with the name of the sync."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from msgspec.structs import replace

from compatgate.documents.specs import Document, Kind, key_of

SYNC_LABEL = "compatgate.dev/sync"
"""Label with the name of the sync that a document belongs to."""
D = TypeVar("D", bound=Document)
Key = tuple[Kind, str]


def owner_of(document: Document) -> str | None:
    """Return the name of the sync that a document belongs to; None: to none."""
    return document.metadata.labels.get(SYNC_LABEL)


def set_owner(document: D, name: str | None) -> D:
    """Return a document with another owner; None: without one."""
    if owner_of(document) == name:
        return document
    labels = {key: value for key, value in document.metadata.labels.items() if key != SYNC_LABEL}
    owned = labels if name is None else {**labels, SYNC_LABEL: name}
    metadata = replace(document.metadata, labels=owned)
    return replace(document, metadata=metadata)


def select_concerned(
    stored: Mapping[Key, Document], read: Iterable[Document], name: str | None, *, prune: bool
) -> list[Document]:
    """Return the stored documents that a sync of files concerns.

    With ``prune``, its documents that the files lack count, too.
    """
    written = {key_of(document) for document in read}
    return [
        document
        for key, document in stored.items()
        if key in written or (prune and name is not None and owner_of(document) == name)
    ]
