"""A version as a value: it compares as numbers, never as text, and keeps what was written."""

from __future__ import annotations

from msgspec import Struct

CudaBuild = tuple[int, ...]
"""The CUDA a component was built for: ``(12, 1)``, or ``(12,)`` where only the major is stated."""


class Version(Struct, frozen=True, gc=False, array_like=True, eq=False, order=False):
    """A version that compares by its numbers.

    Attributes:
        text: as written by the user or the vendor.
        parts: the numeric release as stated, e.g. ``(535, 104, 5)``.
        key: what is compared: parts without trailing zeros, then 0 for a pre-release, 1 otherwise.
        cuda: the CUDA that the component was built for, from its local version (``+cu121``).
        local: the local version label without the plus sign, ``""`` when there is none.
    """

    text: str
    parts: tuple[int, ...]
    key: tuple[tuple[int, ...], int]
    cuda: CudaBuild | None = None
    local: str = ""

    @property
    def major(self) -> int:
        """The first part."""
        return self.parts[0]

    @property
    def minor(self) -> int:
        """The second part, 0 when not stated."""
        return self.parts[1] if len(self.parts) > 1 else 0

    @property
    def major_minor(self) -> tuple[int, int]:
        """The first two parts."""
        return (self.parts[0], self.parts[1] if len(self.parts) > 1 else 0)

    @property
    def public(self) -> str:
        """The text without the local label."""
        return self.text.partition("+")[0]

    def at(self, places: int) -> tuple[int, ...]:
        """The first ``places`` parts, padded with zeros."""
        return (*self.parts, *(0,) * places)[:places]

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __lt__(self, other: Version) -> bool:
        return self.key < other.key

    def __le__(self, other: Version) -> bool:
        return self.key <= other.key

    def __gt__(self, other: Version) -> bool:
        return self.key > other.key

    def __ge__(self, other: Version) -> bool:
        return self.key >= other.key


def make(
    text: str,
    parts: tuple[int, ...],
    *,
    cuda: CudaBuild | None = None,
    local: str = "",
    prerelease: bool = False,
) -> Version:
    """A version from its parts; ``text`` is what messages show."""
    end = len(parts)
    while end > 1 and parts[end - 1] == 0:
        end -= 1
    return Version(text, parts, (parts[:end], 0 if prerelease else 1), cuda, local)


def agree(one: Version, other: Version) -> bool:
    """Whether two versions of one component are the same as far as both are stated.

    ``12.4`` and ``12.4.1`` do, ``9.1.0`` and ``9.1.0.70+cu12``, ``+cu12`` and ``+cu124``; two
    builds (``+cu121`` and ``+cu124``, ``+cu121`` and ``+cpu``) do not.
    """
    if not _alike(one.parts, other.parts):
        return False
    if one.cuda and other.cuda:
        return _alike(one.cuda, other.cuda)
    return not (one.local and other.local) or one.local == other.local


def _alike(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    return all(a == b for a, b in zip(one, other, strict=False))


def same_release(component: str, one: Version, other: Version) -> bool:
    """Whether two spellings can denote the same release.

    Where one states less (the driver API knows CUDA 12.4, not its update; Python 3.11), what both
    state is compared.
    """
    if one.cuda and other.cuda and not _alike(one.cuda, other.cuda):
        return False  # pins and GPU code belong to the build
    if component in ("cuda", "python"):
        return _alike(one.parts, other.parts)
    return one.key == other.key


def show(parts: tuple[int, ...]) -> str:
    """Parts as dotted text."""
    return ".".join(map(str, parts))
