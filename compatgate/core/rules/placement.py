"""CG831 to CG833: where a workload may run, before any stack is judged."""

from __future__ import annotations

from compatgate.core.case import Case
from compatgate.core.parts import NOTHING
from compatgate.core.rules.base import NOT_APPLICABLE, Answer, rule


@rule("CG831", "target-contradicted", cause="matrix", reads=NOTHING)
def target_contradicted(case: Case) -> Answer:
    """A workload names a target that its own placement does not leave.

    Namespace, node selector or affinity, and the requested resource say where a pod may come to
    run. The annotation ``compatgate.dev/target`` chooses among the targets that these leave, and
    never another one: the pod would be judged by one target's policy and run on the nodes of
    another. The Kubernetes hook denies such an object whatever the targets' modes.

    Example: a pod selects the nodes of ``prod-a100`` and is annotated ``compatgate.dev/target:
    staging``.

    Fix: take the annotation away, or select the nodes of the target that it names. A waiver that
    names CG831 and covers every target that the placement leaves (``*`` where it leaves none) lets
    the annotation decide; the workload is then judged on the target that it names.

    Source: the matrix: ``match`` and ``pools`` of the targets.
    """
    del case  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule("CG832", "no-pool-for-request", cause="matrix", reads=NOTHING)
def no_pool_for_request(case: Case) -> Answer:
    """No pool of the target has the GPU product that a workload requests.

    A MIG slice is a product of its own: a container that requests ``nvidia.com/mig-1g.10gb`` is
    judged on pools of that slice, one that requests ``nvidia.com/gpu`` on pools of whole GPUs.
    Where a target declares no such pool, nothing is known of what the container would get. The
    Kubernetes hook denies it where the target's mode is ``enforce``, else it warns.

    Example: ``nvidia.com/mig-3g.40gb`` on a target whose slices are all ``1g.10gb``.

    Fix: request what the target has, or declare the pool in the target. A waiver that names CG832
    and covers the target lets the workload be judged on every pool of the target instead.

    Source: the matrix: ``pools`` of the target.
    """
    del case  # the hook says so; a verdict never does
    return NOT_APPLICABLE


@rule(
    "CG833",
    "some-pools",
    cause="matrix",
    reads=NOTHING,
    not_waivable="says what was not asked",
)
def some_pools(case: Case) -> Answer:
    """The question is about some pools of the target; the others were not judged.

    A question may name ``pools`` of its target; the Kubernetes hook does, where the requested
    resource is in some of them only. The verdict is the worst over these. It is no verdict about
    the whole target and is not signed.

    Fix: ask without ``pools``.

    Source: the question.
    """
    del case  # made by the evaluation
    return NOT_APPLICABLE
