"""CG821: the record of a waiver that was used."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.rules.base import NOT_APPLICABLE, Answer, rule


@rule("CG821", "waived", about_facts=False, reads_driver=False)
def waived(case: Case) -> Answer:
    """A finding was waived: a named exception covers it, with an owner, a reason and an end date.

    The finding stays visible and no longer weighs; this warning says who answers for that and until
    when. A waiver never covers CG901: what is not known cannot be excepted.

    Fix: mend what is waived before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del case  # made by the evaluation, when it applies a waiver
    return NOT_APPLICABLE
