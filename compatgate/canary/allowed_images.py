"""Decide which images under test, which are foreign code, a worker may run: by patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from compatgate.discovery.registry.image_spec import DOCKER_HUB, is_digest, parse_reference
from compatgate.errors import BadInput

ENVIRONMENT = "COMPATGATE_CANARY_IMAGES"
NONE = "none"
_EVERY = "*"
_MAX_SHOWN = 8
_MAX_LENGTH = 512
_HINT = "like registry.example/team/* or docker.io/library/ubuntu:*; * alone is every image"


class AllowedImages(Struct, frozen=True):
    """Globs on the full references of images under test; ``extend`` hints how to add one."""

    patterns: tuple[str, ...] = (_EVERY,)
    extend: str = ""

    def check(self, image: str | None) -> str | None:
        """Return the reference to run, in full, so that no engine reads it as something else."""
        if image is None or _EVERY in self.patterns:
            return image
        names = [image]
        if not is_digest(image):
            # The full image, then its repository; a digest alone decides what runs, not its tag.
            named = parse_reference(image)
            repository = f"{named.registry.lower()}/{named.repository}"
            version = f"@{named.digest}" if named.digest else f":{named.tag}"
            names = [repository + version, repository]
        if any(fnmatchcase(name, pattern) for name in names for pattern in self.patterns):
            return names[0]
        patterns = ", ".join(self.patterns[:_MAX_SHOWN]) + (
            ", ..." if self.patterns[_MAX_SHOWN:] else ""
        )
        raise BadInput(
            f"{names[0]} is not an allowed image under test; allowed: {patterns or 'none'}",
            field="image",
            value=image,
            hint=self.extend,
        )


EVERY_IMAGE = AllowedImages()


def parse_patterns(texts: Sequence[str], field: str) -> tuple[str, ...]:
    """Read patterns, separated by commas or blanks; ``none`` alone is the empty list."""
    items = [item for text in texts for item in re.split(r"[,\s]+", text.strip()) if item]
    if items == [NONE]:
        return ()
    return tuple(dict.fromkeys(_parse_pattern(item, field) for item in items))


def read_allowed_images(
    texts: Sequence[str], option: str, *, otherwise: tuple[str, ...]
) -> AllowedImages:
    """Read the patterns from the option, else from ``COMPATGATE_CANARY_IMAGES``.

    Errors name the option, such as ``worker --image``.
    """
    extend = f"add a pattern with {option} PATTERN or {ENVIRONMENT}, {_HINT}"
    if texts:
        return AllowedImages(parse_patterns(texts, option.partition(" ")[2]), extend)
    if patterns := os.environ.get(ENVIRONMENT, "").strip():
        return AllowedImages(parse_patterns([patterns], ENVIRONMENT), extend)
    return AllowedImages(otherwise, extend)


def _parse_pattern(item: str, field: str) -> str:
    if item == _EVERY or is_digest(item):
        return item
    host, slash, rest = item.partition("/")
    named = re.search(r"[.:]|^localhost$", host) is not None
    try:
        registry = parse_reference(f"{host}/x/x:1").registry.lower()
    except BadInput:
        named = False
    if not (named and slash and rest) or len(item) > _MAX_LENGTH:
        hint = f"begin with the registry, without * in its name; {_HINT}"
        raise BadInput(f"{item!r} is not an image pattern", field=field, value=item, hint=hint)
    if registry == DOCKER_HUB and re.fullmatch(r"[^*?\[/]+([:@].*)?", rest):
        rest = f"library/{rest}"
    return f"{registry}/{rest}"
