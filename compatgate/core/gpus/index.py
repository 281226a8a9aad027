"""The GPUs of the facts by the words of their names."""

from __future__ import annotations

from compatgate.core.derived import derived
from compatgate.core.facts import Gpu, Gpus
from compatgate.core.gpus.names import is_memory, is_variant, normalise


class Index:
    """What lookups need of a table, derived once; holds the table, so that its id stays its own."""

    def __init__(self, table: Gpus) -> None:
        self.table = table
        self.names = {normalise(name): name for name in table.gpus}
        self.found: dict[str, Gpu] = {}

    @derived
    def words(self) -> dict[str, frozenset[str]]:
        """The words of each SKU's name."""
        return {name: frozenset(normal.split("-")) for normal, name in self.names.items()}

    @derived
    def variants(self) -> set[str]:
        """Words that make another SKU of a whole name: ``ti``, ``laptop``, ``80gb``."""
        split = (normal.rpartition("-") for normal in self.names)
        return {last for base, _, last in split if base in self.names}

    def exact(self, words: list[str]) -> Gpu | None:
        """The SKU that is spelled in full; its memory size may be stated in addition."""
        name = self._lookup(words)
        rest = [word for word in words if not is_memory(word)]
        if not name and rest and (name := self._lookup(rest)):
            name = name if self._has(name, words, rest) else None
        return self.table.gpus[name] if name else None

    def _lookup(self, words: list[str]) -> str | None:
        norm = "-".join(words)
        return self.names.get(norm) or self.table.aliases.get(norm)

    def matching(self, words: list[str]) -> list[Gpu]:
        """The SKUs whose name has every word, and no variant (``ti``, ``laptop``) beyond them."""
        if all(map(is_variant, words)):
            return []
        other = {word for word in self.variants if not is_memory(word)} - {*words}
        names = (name for name in self.table.gpus if not self.words[name] & other)
        return [self.table.gpus[name] for name in names if self._has(name, words)]

    def _has(self, name: str, words: list[str], spelled: list[str] | None = None) -> bool:
        memory = self.table.gpus[name].memory_gb
        mine = self.words[name] | frozenset(spelled or ())
        for word in words:
            if is_memory(word) and word not in mine and memory in (None, int(word[:-2])):
                continue
            if word not in mine and not (word == "sxm" and any(w[:3] == "sxm" for w in mine)):
                return False
        return True

    def model(self, gpu: Gpu) -> frozenset[str]:
        """The words of a name that tell products apart: ``a100``, ``6000``."""
        return frozenset(
            word for word in self.words[gpu.name] if not word.isalpha() and not is_variant(word)
        )


_INDEXES: dict[int, Index] = {}


def index_of(table: Gpus) -> Index:
    """The index of a table."""
    if (index := _INDEXES.get(id(table))) is None:
        if len(_INDEXES) >= 8:
            _INDEXES.clear()
        index = _INDEXES[id(table)] = Index(table)
    return index
