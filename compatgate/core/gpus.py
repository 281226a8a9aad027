"""Resolve any spelling of a GPU or MIG slice to one SKU, or to a family whose SKUs agree.

Spellings come from nvidia-smi and NVML (``NVIDIA H100 80GB HBM3``), from the node labels of GPU
Feature Discovery (``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb-SHARED``), from people (``a100 80 GB``)
and from builders that know only a compute capability (``sm_87``). The names themselves are
data, in ``matrix/facts/gpus.yaml``. A spelling that fits several SKUs is refused, never
guessed.
"""

from __future__ import annotations

import re

from msgspec import Struct
from msgspec.structs import replace

from compatgate.core.facts.nvidia import Gpu, Gpus, Memory
from compatgate.core.performance import lazy_property, near_names
from compatgate.core.vgpus import VgpuName, compact, parse_vgpu_name
from compatgate.errors import BadInput

_NOISE = frozenset({"nvidia", "tesla", "generation", "gpu", "nvgpu", "tm", "r"})
_OF_LAPTOPS = frozenset({"with", "max", "q", "design", "mobile"})
"""Words for a slower model of the same GPU, which has no row: ``GTX 1080 with Max-Q Design``."""
_SEPARATORS = re.compile(r"[^a-z0-9]+")
_PREFIX = re.compile(r"(nvidia|tesla|geforce|quadro|titan|jetson|rtx|gtx|gt(?=\d))(.+)")
_SUFFIX = re.compile(r"(\d{3,4})((?:ti|super)+|d)")
_MEMORY = re.compile(r"(\d{1,3})g(?:i?b)?")
_FORM = re.compile(r"sxm\d?|pcie|nvl|hbm\d?e?")


def normalise(text: str) -> str:
    """Return a spelling without vendor, case, separators and unit variants; idempotent.

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
        return [match[1], *re.findall("ti|super|d", match[2])]
    if match := _MEMORY.fullmatch(word):
        return [f"{match[1]}gb"]
    return [] if not word or word in _NOISE else [word]


def is_memory(word: str) -> bool:
    """Return whether a word is a size of memory: ``80gb``."""
    return _MEMORY.fullmatch(word) is not None


def is_variant(word: str) -> bool:
    """Return whether a word tells variants of a product apart: memory size, form (``sxm4``)."""
    return is_memory(word) or _FORM.fullmatch(word) is not None


_MIG_PROFILE = re.compile(
    r"(?<![a-z0-9.])((?:\dc\.)?(\d)g\.(\d{1,3})gb)([+.]me(?:\.all)?|[+.]gfx|-me)?(?![a-z0-9])",
    re.ASCII,
)


class MigProfile(Struct, frozen=True):
    """A MIG profile as NVIDIA spells it (``1g.10gb+me``), and its parts."""

    text: str
    compute: int
    memory: int
    suffix: str


def split_profile(clean: str) -> tuple[MigProfile | None, str]:
    """Split a text into the MIG profile and the rest; labels write a dot for the plus sign."""
    if not (match := _MIG_PROFILE.search(clean)):
        return None, clean
    suffix = re.sub(r"^\.", "+", match[4] or "")
    rest = f"{clean[: match.start()]} {clean[match.end() :]}"
    profile = MigProfile(match[1] + suffix, int(match[2]), int(match[3]), suffix)
    return profile, rest.replace(" mig ", " ").strip(" -:/_")


ANY_SLICE = "/mig-*"
"""Ends the name of a GPU in an entry: each of its MIG slices, and not the whole GPU."""
_ANY_SLICE = re.compile(r"[\s/-]+mig[\s-]*\*\s*", re.IGNORECASE)


def split_any_slice(text: str) -> tuple[str, bool]:
    """Split a name into the GPU and whether it means each MIG slice: ``H100-SXM5-80GB/mig-*``."""
    match = _ANY_SLICE.search(text)
    return (text[: match.start()], True) if match and match.end() == len(text) else (text, False)


_GEOMETRY = {
    8: ((1, 1), (1, 2), (2, 2), (3, 4), (4, 4), (7, 8)),
    4: ((1, 1), (2, 2), (4, 4)),
    2: ((1, 1), (2, 2)),
}
"""Compute slices and memory slices of each profile, by the memory slices of the GPU."""


def mig_profiles(gpu: Gpu) -> tuple[str, ...]:
    """Return the profiles of a GPU without their variants (``+me``); empty when not known.

    Memory is cut into 8, 4 or 2 slices of 5 GB at least, 16 GB on Blackwell RTX: every list of
    NVIDIA's MIG User Guide, "Supported MIG Profiles", follows from that.
    """
    return tuple(f"{compute}g.{int(size + 0.5)}gb" for compute, size in _sizes(gpu))


def _sizes(gpu: Gpu) -> list[tuple[int, float]]:
    if not gpu.mig_capable or not gpu.memory_gb:
        return []
    least = 16 if gpu.capability >= (12, 0) else 5
    slices = next((n for n in (8, 4, 2) if gpu.memory_gb / n >= least), 2)
    return [(compute, gpu.memory_gb * memory / slices) for compute, memory in _GEOMETRY[slices]]


def has_mig_profile(profile: MigProfile, gpu: Gpu) -> bool:
    """Return whether a GPU has a profile; True where its profiles are not known.

    Sizes vary a little between board revisions: GB200 has 3g.93gb and 3g.95gb.
    """
    if profile.suffix not in ("", "+me") and gpu.capability < (11, 0):
        return False
    known = _sizes(gpu)
    return gpu.mig_capable and (
        not known
        or any(
            compute == profile.compute and abs(profile.memory - size) <= max(0.8, size * 0.03)
            for compute, size in known
        )
    )


def is_spelled(text: str, gpu: Gpu, table: Gpus) -> bool:
    """Return whether a text names a GPU, its family (``H100``) or its capability.

    A GPU's name also stands for its MIG slices.
    """
    words = frozenset(normalise(text).split("-"))
    if words <= frozenset(normalise(gpu.sku).split("-")):
        return True
    named = resolve_gpu(text, table)
    if not named.product:
        return named.capability == gpu.capability
    return named.name == gpu.name and named.mig in (None, gpu.mig)


class GpuIndex:
    """Lookup tables of GPU facts, derived once; holds the facts, so that their id stays valid."""

    def __init__(self, table: Gpus) -> None:
        self.table = table
        self.names = {normalise(name): name for name in table.gpus}
        self.found: dict[str, Gpu] = {}

    @lazy_property
    def words(self) -> dict[str, frozenset[str]]:
        """Return the words of each SKU's name."""
        return {name: frozenset(normal.split("-")) for normal, name in self.names.items()}

    @lazy_property
    def vocabulary(self) -> frozenset[str]:
        """Return the words of all names."""
        return frozenset[str]().union(*self.words.values())

    @lazy_property
    def variants(self) -> set[str]:
        """Return words that turn one SKU's name into another's: ``ti``, ``laptop``, ``80gb``."""
        split = (normal.rpartition("-") for normal in self.names)
        return {last for base, _, last in split if base in self.names}

    @lazy_property
    def models(self) -> dict[str, frozenset[str]]:
        """Return the words of each SKU's model, by its name."""
        return {gpu.name: self.model(gpu) for gpu in self.table.gpus.values()}

    @lazy_property
    def model_words(self) -> list[str]:
        """Return the words of all models, once each."""
        return list(dict.fromkeys(word for model in self.models.values() for word in sorted(model)))

    def exact(self, words: list[str]) -> Gpu | None:
        """Return the SKU that is spelled in full, with or without its memory size."""
        name = self._lookup(words)
        rest = [word for word in words if not is_memory(word)]
        if not name and rest and (name := self._lookup(rest)):
            name = name if self._has(name, words, rest) else None
        return self.table.gpus[name] if name else None

    def _lookup(self, words: list[str]) -> str | None:
        norm = "-".join(words)
        return self.names.get(norm) or self.table.aliases.get(norm)

    def matching(self, words: list[str]) -> list[Gpu]:
        """Return the SKUs whose name has every word, and no other variant (``ti``, ``laptop``)."""
        named = {word for word in words if word != "sxm" and not is_memory(word)}
        if all(map(is_variant, words)) or not named <= self.vocabulary:
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
        """Return the words of a name that tell products apart: ``a100``, ``6000``."""
        return frozenset(
            word for word in self.words[gpu.name] if not word.isalpha() and not is_variant(word)
        )


_INDEXES: dict[int, GpuIndex] = {}


def index_of(table: Gpus) -> GpuIndex:
    """Return the index of a table."""
    if (index := _INDEXES.get(id(table))) is None:
        if len(_INDEXES) >= 8:
            _INDEXES.clear()
        index = _INDEXES[id(table)] = GpuIndex(table)
    return index


_LABEL = re.compile(r"nvidia\.com/(?:gpu\.product\s*[=:]?)?")
_COUNT = re.compile(r"^\d{1,3} ?[x*] ?(?=\w)| ?\( ?[x*] ?\d{1,3} ?\)$|(?<!tegra) [x*] ?\d{1,3}$")
"""How many GPUs there are, as reports write it: ``8x H100``, ``RTX 3090 (x2)``."""
_CAPABILITY = re.compile(
    r"(?:(?:sm|compute|cc|(?:compute )?capability)[ _-]?([1-9]\d?)\.?(\d)|([1-9]\d?)\.(\d))([af]?)",
    re.ASCII,
)
_OTHER_VENDORS = re.compile(
    r"\b(?:amd|instinct|radeon|mi\d{2,3}[a-z]?|gfx[0-9a-f]{3,4}|(?P<intel>intel|gaudi\d?|flex|arc))\b"
)
"""Words in the names of other vendors' GPUs, for a better error message."""


def resolve_gpu(text: str, table: Gpus) -> Gpu:
    """Resolve any spelling of a GPU.

    Args:
        text: a product name, a node label, a short name, any of them with a MIG profile, or a
            bare compute capability (``8.7``, ``sm_87``, ``cc 8.7``).

    Returns:
        One SKU; or a family (``A100``) in which a field is None where its SKUs differ; or, for
        a capability, a `Gpu` with ``product`` False.
    """
    index = index_of(table)
    if (found := index.found.get(text)) is None:
        found = _resolve(text, index)
        if len(index.found) >= 4096:
            index.found.clear()
        index.found[text] = found
    return found


def find_gpu(text: str, table: Gpus) -> Gpu | None:
    """Return the GPU of a name or capability; None where the facts do not know it."""
    try:
        return resolve_gpu(text, table)
    except BadInput:
        return None


def covers_gpu(declared: Gpu, seen: Gpu, table: Gpus) -> bool:
    """Return whether a declared GPU covers a real one: same SKU, its family or bare capability."""
    if declared.mig != seen.mig or declared.vgpu != seen.vgpu:
        return False
    if not declared.product:
        return declared.capability == seen.capability
    if declared.name in table.gpus or not seen.product:
        return declared.name == seen.name
    family = index_of(table).matching(normalise(declared.name).split("-"))
    return seen.name == declared.name or any(gpu.name == seen.name for gpu in family)


def can_be_cut(gpu: Gpu, table: Gpus) -> bool:
    """Return whether a GPU, or a product of a family, has MIG."""
    if gpu.mig_capable or gpu.name in table.gpus:
        return gpu.mig_capable
    words = normalise(gpu.name).split("-")
    return any(member.mig_capable for member in index_of(table).matching(words))


def _resolve(text: str, index: GpuIndex) -> Gpu:
    clean = " ".join(_LABEL.sub(" ", text.lower()).split())
    clean = _COUNT.sub("", clean)
    if not clean or len(clean) > 120:
        raise _gpu_error(text, "is not the name of a GPU", "like A100-SXM4-80GB, L4 or sm_90")
    if match := _CAPABILITY.fullmatch(clean):
        return _gpu_of_capability(text, match, index.table)
    profile, rest = split_profile(clean)
    # A slice that a guest sees on a MIG-backed vGPU is that vGPU: GRID A100D-1-20C MIG 1g.20gb.
    if (vgpu := parse_vgpu_name(rest)) and (found := _find_vgpu(vgpu, index.table)):
        return found
    parts = dict.fromkeys(normalise(rest).split("-"))
    words = [word for word in parts if word not in ("", "shared")]
    if profile is None and "mig" in words:
        raise _gpu_error(text, "names MIG without its profile", "like A100-SXM4-80GB-MIG-1g.10gb")
    words = [word for word in words if word != "mig"]
    if not words or (profile and _CAPABILITY.fullmatch(rest)):
        example = f"A100-SXM4-80GB{'-MIG-1g.10gb' if profile else ''}"
        hint = f"write the product{' before the profile' if profile else ''}, like {example}"
        raise _gpu_error(text, "does not say which product it is", hint)
    exact = index.exact(words)
    candidates = [exact] if exact else index.matching(words)
    if not candidates and (others := [word for word in words if word not in _OF_LAPTOPS]):
        candidates = index.matching(others)
    if not candidates:
        raise _unknown_gpu_error(text, words, index)
    if profile is None:
        return _choose_candidate(text, words, candidates, index)
    fitting = _filter_by_profile(text, profile, candidates, index)
    return replace(_choose_candidate(text, words, fitting, index), mig=profile.text)


def _gpu_of_capability(text: str, match: re.Match[str], table: Gpus) -> Gpu:
    capability = (int(match[1] or match[3]), int(match[2] or match[4]))
    name = f"sm_{capability[0]}{capability[1]}"
    if match[5]:
        raise _gpu_error(text, "is a target of code, not a GPU", f"write {name} or the product")
    products = [gpu for gpu in table.gpus.values() if gpu.capability == capability]
    known, cpus = {gpu.architecture for gpu in products}, {gpu.cpu for gpu in products}
    return Gpu(
        name=name,
        capability=capability,
        architecture=known.pop() if len(known) == 1 else None,
        cpu=cpus.pop() if len(cpus) == 1 else None,
        product=False,
    )


def _find_vgpu(name: VgpuName, table: Gpus) -> Gpu | None:
    """Return the vGPU of a type that the facts know, whether they know its size or not."""
    kind = table.vgpus.get(compact(name.prefix))
    if kind is None:
        return None
    board = table.gpus.get(kind.product or "")
    if board is None:
        if kind.capability is None:
            return None
        known = (gpu for gpu in table.gpus.values() if gpu.capability == kind.capability)
        architecture = next((gpu.architecture for gpu in known), None)
        board = Gpu(kind.prefix, kind.capability, architecture, source=kind.source)
    # At most the GiB of its name. A time-sliced type keeps a share for itself (8C shows 8192 MiB,
    # of which 560 are reserved), a MIG-backed one an eighth and more (H100L-1-12C shows 10565 MiB).
    least = name.memory * 7 // 8 if name.slices else name.memory * 0.95
    return replace(
        board,
        brands=(),
        memory_gb=name.memory or None,
        memory=Memory(least, name.memory, kind.source) if name.memory else None,
        mig_capable=False,
        mig_driver=None,
        vgpu=f"{kind.prefix.replace(' ', '-')}-{name.ending}",
    )


def _choose_candidate(text: str, words: list[str], candidates: list[Gpu], index: GpuIndex) -> Gpu:
    """Choose the only candidate, the one that all others are variants of, or their family."""
    if len(candidates) == 1:
        return candidates[0]
    models = [index.model(gpu) for gpu in candidates]
    facts = {(g.capability, g.segment, g.first_branch, g.last_branch) for g in candidates}
    if len(facts) > 1 or (any(models) and not frozenset.intersection(*models)):
        listed = [f"{g.name} ({g.capability[0]}.{g.capability[1]})" for g in candidates]
        shown = ", ".join(listed[:8]) + (", ..." if len(listed) > 8 else "")
        raise _gpu_error(text, "names several products", f"write one of {shown}")
    shared = frozenset.intersection(*(index.words[gpu.name] for gpu in candidates))
    base = [gpu for gpu in candidates if index.words[gpu.name] == shared]
    return base[0] if base else _merge_family(words, candidates)


def _merge_family(words: list[str], members: list[Gpu]) -> Gpu:
    first = members[0]
    sxm = "sxm" in words
    pieces = ((piece, normalise(piece)) for piece in first.name.split("-"))
    name = [
        piece if norm in words else "SXM"
        for piece, norm in pieces
        if norm in words or (sxm and norm[:3] == "sxm")
    ]
    sizes = {gpu.memory_gb for gpu in members}
    known = [gpu.memory for gpu in members if gpu.memory]
    memory = None
    if len(known) == len(members):
        weakest = next((one for one in known if one.source.confidence == "derived"), known[0])
        least, most = min(one.least for one in known), max(one.most for one in known)
        memory = Memory(least, most, weakest.source)
    minimum = {gpu.mig_driver.key if gpu.mig_driver else None for gpu in members}
    return replace(
        first,
        name="-".join(name),
        architecture=first.architecture if len({g.architecture for g in members}) == 1 else None,
        cpu=first.cpu if len({g.cpu for g in members}) == 1 else None,
        brands=tuple(dict.fromkeys(brand for gpu in members for brand in gpu.brands)),
        memory_gb=first.memory_gb if len(sizes) == 1 else None,
        memory=memory,
        mig_capable=all(gpu.mig_capable for gpu in members),
        mig_driver=first.mig_driver if len(minimum) == 1 else None,
    )


def _filter_by_profile(
    text: str, profile: MigProfile, candidates: list[Gpu], index: GpuIndex
) -> list[Gpu]:
    """Return the candidates with a profile: A100 1g.5gb means one of the 40 GB products."""
    if fitting := [gpu for gpu in candidates if has_mig_profile(profile, gpu)]:
        return fitting
    first = candidates[0]
    if not any(gpu.mig_capable for gpu in candidates):
        problem = f"names a MIG profile, and the facts know of no MIG on {first.name}"
        raise _gpu_error(text, problem, "leave the profile out")
    own = dict.fromkeys(name for gpu in candidates for name in mig_profiles(gpu))
    related = [g for g in index.table.gpus.values() if index.model(g) & index.model(first)]
    others = [gpu.name for gpu in related if has_mig_profile(profile, gpu)]
    of = f"; {profile.text} is a profile of {' and '.join(others[:3])}" if others else ""
    problem = f"names a MIG profile that {first.name} does not have"
    raise _gpu_error(text, problem, f"it has {', '.join(own)}{of}")


def _gpu_error(text: str, problem: str, hint: str) -> BadInput:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return BadInput(f"{shown!r} {problem}", field="gpu", value=text, hint=hint)


def _unknown_gpu_error(text: str, words: list[str], index: GpuIndex) -> BadInput:
    models, known = index.models, index.model_words
    meant = {near for word in words for near in near_names(word, known, most=2, cutoff=0.75)}
    meant = meant & set(words) or meant
    names = [name for name, model in models.items() if model & meant][:4]
    if match := _OTHER_VENDORS.search(" ".join(words)):
        vendor = "Intel" if match.lastgroup == "intel" else "AMD"
        problem = f"is a GPU of {vendor}: compatgate supports only NVIDIA GPUs"
        return _gpu_error(text, problem, "ask about pools of NVIDIA GPUs")
    suggest = f"did you mean {' or '.join(names)}? otherwise " if names else ""
    suggest += "give its compute capability, like gpu=sm_90"
    return _gpu_error(text, "is not a GPU that the facts know", suggest)
