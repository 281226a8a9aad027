"""Documents as YAML or JSON text, in the style of the examples; reading it back gives the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

_Base: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_Base):  # type: ignore[misc]
    """Quotes what YAML would read as anything but text, and writes no anchors."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never an anchor: each document stands alone."""
        return True


def to_yaml(bodies: Iterable[dict[str, Any]]) -> str:
    """Documents as one YAML text, separated by ``---``."""
    return "---\n".join(
        yaml.dump(
            body, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100,
            default_flow_style=False,
        )
        for body in bodies
    )  # fmt: skip


def to_json(bodies: Iterable[dict[str, Any]]) -> str:
    """Documents as one JSON list."""
    return json.dumps(list(bodies), indent=2, ensure_ascii=False) + "\n"
