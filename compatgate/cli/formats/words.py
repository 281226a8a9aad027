"""Words that the forms share: what was asked, what was answered, which command would mend it."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_letters, digits
from typing import TYPE_CHECKING, Any

from compatgate.cli.terminal import printable
from compatgate.core.components import label_of
from compatgate.core.verdict import RANK, asked_value

if TYPE_CHECKING:
    from compatgate.cli.formats import Answer

Json = dict[str, Any]
MOST_ARCHES = 6
_PLAIN = frozenset(ascii_letters + digits + "=,._+-")


def headline(verdict: Json) -> tuple[str, str]:
    """The answer in words, and the colour that goes with it."""
    outcome, allowed = verdict["verdict"], verdict["allowed"]
    if not allowed:
        return ("NO DECISION", "yellow") if outcome == "unknown" else ("DENIED", "red")
    if outcome in ("fail", "unknown"):
        what = "it fails" if outcome == "fail" else "it is not known whether it works"
        return f"ALLOWED by mode '{verdict['mode']}', although {what}", "yellow"
    if outcome == "warn":
        return "ALLOWED, with warnings", "yellow"
    return "ALLOWED", "green"


def place(verdict: Json) -> str:
    """Where it is to run: the target, or the pools in words."""
    pools = verdict["pools"]
    if verdict["target"]:
        return f"target {verdict['target']}"
    shown = [pool_words(pool) for pool in pools[:3]]
    more = f" and {len(pools) - 3} more pools" if len(pools) > 3 else ""
    return "; ".join(shown) + more


def pool_words(pool: Json) -> str:
    """``A100-SXM4-80GB, driver 535.104.05``."""
    system = "" if pool["os"] == "linux" else f", {pool['os']}"
    return f"{pool['gpu'] or 'unknown GPU'}, driver {pool['driver'] or 'unknown'}{system}"


def stack_words(stack: Json) -> str:
    """``CUDA 12.1, cuDNN 8.9.7, PyTorch 2.4.1, sm_80``."""
    parts = [f"{_label(name)} {value}" for name, value in stack.items() if isinstance(value, str)]
    arch = stack.get("arch")
    if arch is not None:
        more = f" and {len(arch) - MOST_ARCHES} more" if len(arch) > MOST_ARCHES else ""
        parts.append("+".join(arch[:MOST_ARCHES]) + more if arch else "no GPU code")
    return ", ".join(parts) or "an empty stack"


def _label(name: str) -> str:
    return label_of(name)


def fix_option(change: Json) -> str:
    """The option that tries a fix: ``--set driver=525.60.13,cuda-compat=``."""
    value = ",".join(f"{name}={asked_value(value)}" for name, value in change.items())
    if set(value) <= _PLAIN:
        return f"--set {value}"
    quoted = printable(value).replace("'", "'\\''")
    return f"--set '{quoted}'"


def source_words(source: Json | None) -> str:
    """Title and address of a source, the first where there are several; empty without one."""
    if not source:
        return ""
    title = str(source["title"])
    if "also" not in source:  # an older gate joins several
        title = title.partition(";")[0].strip()
    if len(title) > 160:
        title = title[:157].rpartition(" ")[0] + "..."
    return f"{title} - {source['url']}" if source["url"] else title


def provenance(verdict: Json) -> str:
    """What the answer rests on, in one line."""
    algorithm, _, digest = str(verdict["facts"]).partition(":")
    held = len(verdict["checked"]["passed"])
    parts = [f"{held} rules hold", f"facts {algorithm}:{digest[:12]}"]
    if verdict["overlays"]:
        parts.append(f"overlays {', '.join(verdict['overlays'])}")
    if verdict["target"]:
        parts.append(f"matrix revision {verdict['matrix_revision']}")
        parts.append(f"evidence {', '.join(verdict['evidence']) or 'none'}")
    if verdict["valid_until"]:
        parts.append(f"holds until {verdict['valid_until'][:10]}")
    parts.append(str(verdict["id"]))
    return " · ".join(parts)


def shows_pools(verdict: Json) -> bool:
    """Whether findings must say which pools they are about."""
    return len(verdict["pools"]) > 1


def of(verdict: Json, *outcomes: str) -> list[Json]:
    """The findings of these outcomes, in the verdict's order."""
    return [finding for finding in verdict["findings"] if finding["outcome"] in outcomes]


def outcome(answers: Sequence[Answer]) -> dict[str, str]:
    """The answer for programs: ``verdict``, ``allowed`` and ``id`` of the worst one.

    Without any answer nothing was asked: the verdict is ``none``.
    """
    if not answers:
        return {"verdict": "none", "allowed": "true", "id": ""}
    worst = max(
        (answer.verdict for answer in answers), key=lambda v: (not v["allowed"], RANK[v["verdict"]])
    )
    allowed = "true" if worst["allowed"] else "false"
    return {"verdict": str(worst["verdict"]), "allowed": allowed, "id": str(worst["id"])}
