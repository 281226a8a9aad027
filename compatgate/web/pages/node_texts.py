"""Draft the pools of a target from text that describes nodes.

The text is the output of nvidia-smi, Kubernetes nodes or their labels, objects of the GPU Operator,
or a probe.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import Struct

from compatgate.core.facts import Facts
from compatgate.discovery.integrations.drafts import (
    Draft,
    DraftPool,
    draft_pool,
    draft_target,
    read_drafts,
)
from compatgate.discovery.probe import Probe, probe_labels, probe_output, read_probe
from compatgate.documents.specs import PoolSpec
from compatgate.errors import BadInput

_ORIGIN = "node text"
_SMI = re.compile(r"NVIDIA-SMI|<nvidia_smi_log|Driver Version\s*:|^name, ?driver_version", re.M)
_SMI_LIST = re.compile(r"^GPU \d+: .*\(UUID: ", re.M)
_OBJECT = re.compile(r"^\s*-?\s*\"?(apiVersion|kind|items)\"?\s*:", re.M)
_LABEL = re.compile(r"nvidia\.com/(gpu|cuda|mig)")
_HINT = (
    "paste the output of nvidia-smi, of kubectl get nodes -o yaml or -o json, the labels of a"
    " node, or a probe"
)


class NodeDraft(Struct, frozen=True):
    """Pools that a text describes.

    Attributes:
        pools: as a target's document has them, without what is not known.
        notes: sentences for the person who checks them.
    """

    pools: tuple[dict[str, Any], ...]
    notes: tuple[str, ...] = ()


def draft_pools(text: str, facts: Facts) -> NodeDraft:
    """Read pools from a text."""
    given = text.strip()
    if not given:
        raise BadInput("no text or file is given", field=_ORIGIN, hint=_HINT)
    if given.startswith("{") and '"compatgate"' in given:
        return _from_probe_file(given)
    if _SMI.search(given) or _SMI_LIST.search(given):
        draft = _from_probe(probe_output(text, facts, origin=_ORIGIN))
    elif _OBJECT.search(given):
        draft = read_drafts([(_ORIGIN, text)], facts)
    elif _LABEL.search(given):
        draft = _from_probe(probe_labels(text, facts, origin=_ORIGIN))
    else:
        raise BadInput("is not in a known format", field=_ORIGIN, hint=_HINT)
    named = draft_target(draft, "draft", facts.gpus)
    pools = tuple(map(_with_count, named["spec"]["pools"]))
    return NodeDraft(pools, (*_list_missing(draft), *draft.notes))


def _with_count(pool: dict[str, Any]) -> dict[str, Any]:
    """State the number of nodes, so that a person sees and corrects it: one host is often many."""
    return {**pool, "count": pool.get("count", 1)}


def _from_probe(probe: Probe) -> Draft:
    said = probe.host.get("notes")
    notes = [str(note) for note in said] if isinstance(said, list | tuple) else []
    conflicts = [conflict.message for conflict in probe.conflicts]
    return Draft(tuple(map(draft_pool, probe.pools)), (*notes, *conflicts))


def _from_probe_file(text: str) -> NodeDraft:
    known = {*PoolSpec.__struct_encode_fields__}
    pools = [
        {key: value for key, value in pool.items() if key in known}
        for pool in read_probe(text, origin=_ORIGIN)["pools"]
    ]
    return NodeDraft(tuple(map(_with_count, pools)))


def _list_missing(draft: Draft) -> list[str]:
    return [
        f"Pool {pool.name}: {name} is not known: {_explain(pool, name)}."
        for pool in draft.pools
        for name in pool.missing
    ]


def _explain(pool: DraftPool, name: str) -> str:
    return pool.why.get(name, "the text does not name it")
