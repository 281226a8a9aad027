"""Why a library's request failed."""

from __future__ import annotations


def innermost(error: BaseException) -> str:
    """The innermost cause, which says more than what wraps it."""
    seen = {id(error)}
    while (inner := error.__cause__ or error.__context__) and id(inner) not in seen:
        seen.add(id(inner))
        error = inner
    return " ".join(str(error).split()) or type(error).__name__
