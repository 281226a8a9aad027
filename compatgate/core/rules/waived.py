"""CG821 and CG822: the record of a waiver that was used."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.parts import NOTHING
from compatgate.core.rules.base import NOT_APPLICABLE, Answer, rule


@rule("CG821", "waived", cause="matrix", reads=NOTHING, not_waivable="records waivers")
def waived(case: Case) -> Answer:
    """A finding was waived: a named exception covers it, with an owner, a reason and an end date.

    The finding stays visible and no longer weighs; this warning says who answers for that and until
    when. A waiver never covers CG901: what is not known cannot be excepted.

    Fix: mend what is waived before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del case  # made by the evaluation, when it applies a waiver
    return NOT_APPLICABLE


@rule("CG822", "exempted", cause="matrix", reads=NOTHING)
def exempted(case: Case) -> Answer:
    """A workload was let in by the Kubernetes hook although its verdict denies it.

    The verdict stays what it is; only the hook's answer is another. It takes a waiver that names
    CG822, is in force, and covers the target and the image, and an object that names that waiver
    (annotation ``compatgate.dev/waiver``) or lies in a namespace that the operator exempts by it.

    Example: a job must start tonight while its registry is down; the waiver ``night-run`` with
    ``rules: [CG822]`` lets it in, with a warning that names the waiver.

    Fix: mend what the verdict says before the waiver ends.

    Source: the matrix, at the revision that the verdict names.
    """
    del case  # the hook says so; a verdict never does
    return NOT_APPLICABLE
