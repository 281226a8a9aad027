"""Artifacts beside images in registries: attached to an image, and found again by it.

`attach` pushes, `attached` lists and fetches. A registry that knows OCI 1.1 keeps the list itself;
for others it is kept under a tag that is made of the image's digest.
"""

from __future__ import annotations

from compatgate.discovery.artifacts.attach import Attached, Place, attach, attached, opened

__all__ = ["Attached", "Place", "attach", "attached", "opened"]
