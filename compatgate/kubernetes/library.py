"""The official client, which is imported when a cluster is to be reached."""

from __future__ import annotations

from typing import Any

from compatgate.errors import BadInput


def client() -> Any:
    """The module ``kubernetes.client``; importing it takes half a second.

    Raises:
        BadInput: it is not installed.
    """
    try:
        from kubernetes import client as module
    except ImportError:
        raise BadInput(
            "clusters are reached by a library that is not installed: kubernetes",
            field="kubernetes",
            value="kubernetes",
            hint="pip install 'compatgate[kubernetes]'",
        ) from None
    return module
