"""Check that the author of a change of the matrix may make it.

Entries and waivers decide what may run, so each of their changes needs ``bless``. A change of a
target needs it where the target then enforces less; ``operate`` is enough for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compatgate.documents.specs import Document, TargetDoc, kind_of, target_refs
from compatgate.documents.weakening import find_weakened
from compatgate.service.matrix.revisions import Edit
from compatgate.service.tokens.principal import AccessRefused, Principal

_HINT = "create a token with: compatgate token create --name NAME --scope bless"


def check_edits(edits: Sequence[Edit], author: Principal | None) -> None:
    """Refuse edits that their author may not make; one is enough to refuse all.

    Args:
        edits: of one revision.
        author: None: the installation itself, at its first start.

    Raises:
        AccessRefused: an edit concerns a target outside the author's limit, or needs ``bless``.
    """
    if author is None:
        return
    author.require_targets(name for edit in edits for name in targets_of(edit))
    if not author.may("bless"):
        for edit in edits:
            _refuse_weakening(edit, author)


def targets_of(edit: Edit) -> list[str]:
    """Return the targets that an edit concerns, before and after; ``*`` is all of them."""
    sides: Iterable[Document | None] = (edit.before, edit.after)
    return list(dict.fromkeys(name for side in sides if side for name in _names(side)))


def _names(document: Document) -> Iterable[str]:
    return [document.metadata.name] if isinstance(document, TargetDoc) else target_refs(document)


def weakened_by(edit: Edit) -> str:
    """Return what in an edit needs ``bless``, in words; empty: nothing."""
    before, after = edit.before, edit.after
    if isinstance(before, TargetDoc) and isinstance(after, TargetDoc):
        weakened = find_weakened(before, after)
        return f"to change {', '.join(weakened)}" if weakened else ""
    return f"to {edit.action} it"


def _refuse_weakening(edit: Edit, author: Principal) -> None:
    if not (weakened := weakened_by(edit)):
        return
    kind, name = kind_of(edit.document).lower(), edit.document.metadata.name
    raise AccessRefused(
        f"the token {author.name} lacks the scope bless; the {kind} {name} needs it {weakened}",
        principal=author,
        field="scope",
        value="bless",
        hint=_HINT,
    )
