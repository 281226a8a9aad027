"""Read a question as people write it: ``torch 2.7 cu128 @ prod-a100``.

The exact form of a stack, ``torch=2.7.1+cu128``, stays as it is written. A release without its last
part (``torch 2.7``) names a series: the newest known release of the series is taken, and said as an
assumption with the other releases of the series. A word that means nothing is an error with the
names nearest to it, never left out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from msgspec import Struct

from compatgate.core.components import COMPONENTS, find_component, label_of, resolve_component
from compatgate.core.entry_stacks import known_versions
from compatgate.core.facts import Facts
from compatgate.core.gpus import resolve_gpu
from compatgate.core.performance import near_names
from compatgate.core.stack import parse_stack_text
from compatgate.core.versions import parse_version, split_tag
from compatgate.errors import BadInput

MAX_QUESTION = 2000  # characters of a question; what is longer is pasted text
_NOISE = frozenset(
    (
        *("+", "&", "?", "a", "all", "allowed", "an", "and", "any", "are", "build", "built", "can"),
        *("cluster", "do", "does", "fleet", "for", "gpu", "gpus", "have", "how", "i", "if", "in"),
        *("is", "it", "may", "my", "node", "nodes", "of", "on", "our", "please", "run", "running"),
        *("runs", "should", "stack", "still", "support", "supported", "supports", "the", "there"),
        *("to", "use", "using", "version", "we", "where", "will", "with", "work", "works", "your"),
    )
)
_VERSION = re.compile(r"v?(\d+(?:\.\d+)*(?:\.?(?:post|rc|dev|a|b)\d+)*)(\+[\w.]+)?", re.IGNORECASE)
_LABEL = re.compile(r"\+?(cu\d{2,4})", re.IGNORECASE)
_JOINED = re.compile(r"([a-z][a-z_-]*?)[-_:]?v?(\d+(?:\.\d+)+(?:\+[\w.]+)?)", re.IGNORECASE)
_CODE = re.compile(r"(sm|compute)[_-]?(\d{2,3}[af]?)", re.IGNORECASE)
_PYTHON = re.compile(r"(?:py|cp)(\d)\.?(\d{1,2}t?)", re.IGNORECASE)
_IMAGE = re.compile(
    r"(?:docker://)?[a-z0-9][\w.-]*(?:(?::\d+)?(?:/[\w.-]+)+(?::[\w.-]+)?|:[\w.-]+)(?:@sha256:[0-9a-f]{64})?"
)
_SAME_INDEX = ("torch", "torchvision", "torchaudio")
"""Packages that one index serves with one label."""
_SERIES_PARTS = 3
_GPU_WORDS = 4
_OTHERS = 6


class Assumption(Struct, frozen=True):
    """A release that was taken where the question names a series."""

    component: str
    said: str  # the series, as it was written
    taken: str
    others: tuple[str, ...]  # other known releases of the series, newest first

    @property
    def message(self) -> str:
        """Return the assumption as a sentence."""
        name = label_of(self.component)
        shown = ", ".join(self.others[:_OTHERS])
        hidden = len(self.others) - _OTHERS
        more = f"; also known: {shown}" + (f" and {hidden} older" if hidden > 0 else "")
        more = more if self.others else ""
        return f"{name} {self.said} names no release: using {self.taken}, the newest known{more}"


class WordedQuestion(Struct, frozen=True):
    """A question read from words."""

    target: str = ""  # its name; empty: none was named
    stack: dict[str, Any] = {}
    image: str = ""
    driver: str = ""
    gpu: str = ""
    assumptions: tuple[Assumption, ...] = ()


def names_component(text: str) -> bool:
    """Return whether a text names a component, also a misspelt one, or a place, as questions do."""
    words = _split_words(text)
    return "@" in words[1:] or any(
        _LABEL.fullmatch(word)
        or _CODE.fullmatch(word)
        or find_component(word)
        or _is_misspelt(word)
        or ((joined := _JOINED.fullmatch(word)) and find_component(joined[1]))
        or (("=" in word) and find_component(word.partition("=")[0]))
        for word in words
    )


def _is_misspelt(word: str) -> bool:
    """Return whether a word is a component with a slip of the hand."""
    try:
        resolve_component(word)
    except BadInput as error:
        return error.hint.startswith("did you mean")
    return False


def is_image(text: str) -> bool:
    """Return whether a text is an image reference, and not a component with its version."""
    name = text.partition(":")[0]
    return bool(_IMAGE.fullmatch(text)) and ("/" in text or find_component(name) is None)


def read_question(text: str, facts: Facts, targets: Collection[str] = ()) -> WordedQuestion:
    """Read a question in words.

    Read ``torch 2.7 cu128 @ prod-a100``, a list with commas or lines, or the exact form
    ``torch=2.7.1+cu128,python=3.12``.
    """
    if len(text) > MAX_QUESTION:
        hint = "paste longer text on the page Ask"
        raise BadInput(f"has more than {MAX_QUESTION} characters", field="question", hint=hint)
    return _Reader(facts, {name.casefold(): name for name in targets}).read(_split_words(text))


def _split_words(text: str) -> list[str]:
    """Split a text into words; an at-sign that is no digest's is a word of its own."""
    spaced = re.sub(r"@(?!sha256:)", " @ ", text)
    spaced = re.sub(r"\s*(==?)\s*", r"\1", spaced)
    spaced = re.sub(r"(\d)\s*\+\s*(cu\d+)", r"\1+\2", spaced)
    words = re.split(r"[\s,;]+", spaced)
    return [word for word in (word.rstrip("?!").strip("\"'`()") for word in words) if word]


class _Reader:
    def __init__(self, facts: Facts, targets: dict[str, str]) -> None:
        self._facts, self._targets = facts, targets
        self._exact: dict[str, Any] = {}
        self._series: dict[str, str] = {}
        self._label = self._target = self._image = self._driver = self._gpu = ""
        self._arch: list[str] = []

    def read(self, words: Sequence[str]) -> WordedQuestion:
        rest = list(words)
        while rest:
            rest = rest[self._read_word(rest) :]
        assumptions = tuple(filter(None, map(self._take_release, self._series)))
        self._place_label()
        stack = {**self._exact}
        if self._arch:
            stack["arch"] = "+".join(self._arch)
        return WordedQuestion(
            self._target, stack, self._image, self._driver, self._gpu, assumptions
        )

    def _read_word(self, words: Sequence[str]) -> int:
        """Read the first word with those that belong to it; return how many."""
        word, following = words[0], words[1] if len(words) > 1 else ""
        if word == "@":
            return self._read_place(words)
        if name := self._targets.get(word.casefold()):
            self._set_target(name)
            return 1
        if "=" in word or re.match(r"[\w.-]+[<>!~]", word):
            for key, value in parse_stack_text(word).items():
                self._state(key, value, exact=True)
            return 1
        if self._read_single(word):
            return 1
        if (joined := _JOINED.fullmatch(word)) and find_component(joined[1]):
            self._state(joined[1], joined[2])
            return 1
        if "/" in word or (":" in word and _IMAGE.fullmatch(word)):
            if not _IMAGE.fullmatch(word):
                raise BadInput(f"{word!r} is not an image reference", field="question", value=word)
            self._image = self._once("image", self._image, word.removeprefix("docker://"))
            return 1
        if word.casefold() in _NOISE:
            return 1
        if _VERSION.fullmatch(word):
            what, hint = (
                f"the version {word} has no name",
                f"write the name before it, like torch {word}",
            )
            raise BadInput(what, field="question", value=word, hint=hint)
        return self._read_named(word, following) or self._read_gpu(words) or self._refuse(word)

    def _read_single(self, word: str) -> bool:
        """Read a word that needs no other: a label of CUDA, GPU code, a Python."""
        if label := _LABEL.fullmatch(word):
            self._label = self._once("label", self._label, label[1].lower())
        elif code := _CODE.fullmatch(word):
            self._arch.append(f"{code[1].lower()}_{code[2].lower()}")
        elif python := _PYTHON.fullmatch(word):
            self._state("python", f"{python[1]}.{python[2]}")
        else:
            return False
        return True

    def _read_named(self, word: str, following: str) -> int:
        version = _VERSION.fullmatch(following)
        component = find_component(word)
        if version and (component or re.fullmatch(r"[a-z][\w.-]*", word, re.IGNORECASE)):
            if not component and self._is_gpu(f"{word} {following}"):
                return 0
            self._state(word, version[1] + (version[2] or ""))
            return 2
        if not component:
            return 0
        if component.component.name == "cuda" and self._label:
            return 1  # "cu128 CUDA"
        known = sorted(known_versions(self._facts, component.component.name), reverse=True)[:5]
        hint = f"write {component.component.name} and a release"
        if known:
            hint += f", like {', '.join(version.text for version in known)}"
        raise BadInput(f"{word!r} has no version", field="question", value=word, hint=hint)

    def _read_place(self, words: Sequence[str]) -> int:
        if len(words) == 1:
            hint = "for example @ prod-a100"
            raise BadInput("no target follows the @", field="question", hint=hint)
        if name := self._targets.get(words[1].casefold()):
            self._set_target(name)
            return 2
        if words[1].casefold() == "driver" or (count := self._read_gpu(words[1:])) == 0:
            if words[1].casefold() == "driver":
                return 1
            near = near_names(words[1].casefold(), self._targets.keys(), most=3)
            hint = f"did you mean {', '.join(self._targets[one] for one in near)}?" if near else ""
            problem = f"{words[1]!r} is neither a target nor a GPU"
            raise BadInput(problem, field="target", value=words[1], hint=hint)
        return 1 + count

    def _read_gpu(self, words: Sequence[str]) -> int:
        """Read a GPU of up to four words, the longest spelling first."""
        if not re.match(r"[a-z]", words[0], re.IGNORECASE):
            return 0
        for count in range(min(_GPU_WORDS, len(words)), 0, -1):
            if "@" in words[:count] or not _NOISE.isdisjoint(words[:count]):
                continue
            text = " ".join(words[:count])
            for name in (text, re.sub("[\u2019']?s$", "", text)):  # our H100s
                if self._is_gpu(name):
                    self._gpu = self._once("gpu", self._gpu, name)
                    return count
        return 0

    def _is_gpu(self, text: str) -> bool:
        try:
            return resolve_gpu(text, self._facts.gpus).product
        except BadInput:
            return False

    def _refuse(self, word: str) -> int:
        known = [*COMPONENTS, *self._targets, "pytorch"]
        near = near_names(word.casefold(), known, most=3)
        shown = [self._targets.get(one, one) for one in near]
        hint = f"did you mean {', '.join(shown)}?" if shown else "write names with versions"
        hint += "" if shown else ", like torch 2.7.1 cu128 @ TARGET"
        raise BadInput(f"{word!r} is not recognised", field="question", value=word, hint=hint)

    def _set_target(self, name: str) -> None:
        self._target = self._once("target", self._target, name)

    def _once(self, field: str, before: str, value: str) -> str:
        if before and before != value:
            problem = f"two are named: {before} and {value}"
            raise BadInput(problem, field=field, value=value, hint="name one")
        return value

    def _state(self, name: str, value: str, *, exact: bool = False) -> None:
        if name.casefold() in ("arch", "needs", "cuda-compat", "require"):
            self._exact[name.casefold()] = value
            return
        component = resolve_component(name).component
        if component.name == "driver":
            self._driver = self._once("driver", self._driver, value)
            return
        if component.name in self._exact:
            raise BadInput("is stated twice", field=component.name, value=value, hint="state one")
        if not exact:
            parse_version(component.name, value)
            self._series[component.name] = value
        self._exact[component.name] = value

    def _take_release(self, name: str) -> Assumption | None:
        """Take the newest known release of a series; None where a release is named."""
        said = self._series[name]
        plain, plus, label = said.partition("+")
        parts = plain.split(".")
        if name in ("cuda", "python") or not plain.replace(".", "").isdecimal():
            return None
        if len(parts) >= _SERIES_PARTS:
            return None
        wanted = tuple(map(int, parts))
        found = [
            version
            for version in sorted(known_versions(self._facts, name), reverse=True)
            if version.at(len(wanted)) == wanted and re.fullmatch(r"[\d.]+", version.public)
        ]
        label = label or (self._label if name in _SAME_INDEX else "")
        table = self._facts.framework(name) if label else None
        known = table.by_version if table else {}
        built = [
            version
            for version in found
            if not label
            or (version in known and any(one.label == label for one in known[version].builds))
        ]
        texts = list(dict.fromkeys(version.public for version in built or found))
        if not texts:
            return None
        self._exact[name] = texts[0] + (f"{plus}{label}" if plus else "")
        return Assumption(name, said, texts[0], tuple(texts[1:]))

    def _place_label(self) -> None:
        """Give the label to what carries labels, else read it as the CUDA of the stack."""
        if not self._label:
            return
        carriers = [name for name in _SAME_INDEX if name in self._exact]
        if not carriers and len(split_tag(self._label[2:])) == 1:
            carriers = [name for name in ("cudnn", "nccl") if name in self._exact]
        for name in carriers:
            if "+" not in self._exact[name]:
                self._exact[name] += f"+{self._label}"
        if carriers:
            return
        cuda = split_tag(self._label[2:])
        if len(cuda) == 1:
            what, hint = "names only CUDA's major version", "name the minor, too, like cu128"
            raise BadInput(what, field="cuda", value=self._label, hint=hint)
        text = ".".join(map(str, cuda))
        self._exact["cuda"] = self._once("cuda", self._exact.get("cuda", ""), text)


def is_exact(text: str) -> bool:
    """Return whether a text has the exact form of a stack, which is read as it is written."""
    items = [item.strip() for item in text.split(",") if item.strip()]
    return bool(items) and all(re.fullmatch(r"[\w.-]+\s*==?\s*\S+", item) for item in items)
