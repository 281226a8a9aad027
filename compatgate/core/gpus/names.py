"""The words of a GPU's name, without what spellings of it differ in."""

from __future__ import annotations

import re

_NOISE = frozenset({"nvidia", "tesla", "generation", "gpu", "nvgpu", "tm", "r"})
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PREFIX = re.compile(r"(nvidia|tesla|geforce|quadro|titan|jetson|rtx|gtx|gt(?=\d))(.+)")
_SUFFIX = re.compile(r"(\d{3,4})((?:ti|super)+)")
_MEMORY = re.compile(r"(\d{1,3})g(?:i?b)?")
_FORM = re.compile(r"sxm\d?|pcie|nvl|hbm\d?e?")


def normalise(text: str) -> str:
    """A spelling without vendor, case, separators and unit variants; idempotent.

    ``NVIDIA A100-SXM4-80GB``, ``a100 sxm4 80 GB`` and ``A100_SXM4_80GiB`` all give
    ``a100-sxm4-80gb``; ``RTX4070Ti`` gives ``rtx-4070-ti``.
    """
    words: list[str] = []
    for part in _SEPARATORS.split(text.lower()):
        for word in _parts(part):
            if words and words[-1].isdigit() and word in ("g", "gb", "gib"):
                words[-1] += "gb"
            else:
                words.append(word)
    return "-".join(words)


def _parts(word: str) -> list[str]:
    if match := _PREFIX.fullmatch(word):
        return [*_parts(match[1]), *_parts(match[2])]
    if match := _SUFFIX.fullmatch(word):
        return [match[1], *re.findall("ti|super", match[2])]
    if match := _MEMORY.fullmatch(word):
        return [f"{match[1]}gb"]
    return [] if not word or word in _NOISE else [word]


def is_memory(word: str) -> bool:
    """Whether a word is a size of memory: ``80gb``."""
    return _MEMORY.fullmatch(word) is not None


def is_variant(word: str) -> bool:
    """Whether a word tells variants of one product apart: a size of memory, a form (``sxm4``)."""
    return is_memory(word) or _FORM.fullmatch(word) is not None
