"""Read rendered manifests: the objects that may make GPU pods, with their lines.

Several documents in a file, lists (``kind: List``) and JSON are read as ``kubectl apply`` reads
them. Only objects that may carry pods are kept: a Secret is counted and goes nowhere.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from compatgate.documents.sources import FieldPath, Problems, Source, read_paths
from compatgate.documents.text import RawDocument, TextForm, read_nodes
from compatgate.errors import BadInput, ManyProblems
from compatgate.kit.kubernetes import read_mapping, read_text, to_one_line
from compatgate.service.cluster.claims import states_claims
from compatgate.service.cluster.kinds import Kinds

MAX_BYTES = 32 * 1024 * 1024
"""Bytes of a file; a rendered chart has some hundred thousand."""
MAX_DEPTH = 128
"""Definitions of custom resources are nested more deeply than any object with pods."""
DEFAULT_NAMESPACE = "default"
_FORM = TextForm(MAX_DEPTH, scalar_keys=True, may_be_empty=True)
_DATA_KINDS = {
    ("", "Secret"), ("", "ConfigMap"), ("apiextensions.k8s.io", "CustomResourceDefinition"),
}  # fmt: skip
"""Kinds that never make pods; what they hold is nobody's business."""
_POD_KEYS = frozenset(
    (
        *("containers", "initContainers", "ephemeralContainers", "container", "image"),
        *("resources", "resourceClaims", "runtimeClassName"),
    )
)
"""Keys of which every pod, and every field that stands for a pod, has one."""
_CLAIM_KEYS = frozenset(("resourceClaims", "draResources"))
_TEMPLATE = re.compile(
    r"\{\{-?\s*([.$]|(include|template|if|else|end|range|with|define|tpl|default|printf|toYaml)\b)"
)
"""An action of a Helm template. Other programs write ``{{name}}`` in objects."""
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w*")
"""A variable of a shell: no name, image, label or quantity has one. ``$(NAME)`` is Kubernetes'."""
_FILL = "fill in its variables first: envsubst < FILE | compatgate k8s check -"
_VALUE_KEYS = ("limits", "requests", "nodeSelector")
_RENDER = "render it first: helm template CHART | compatgate k8s check -"
_SHOWN = 63


class Manifest(Struct, frozen=True):
    """An object that may make pods: the document that holds it, and where it is inside."""

    raw: RawDocument
    inside: FieldPath
    document: Mapping[str, Any]
    group: str
    kind: str
    namespace: str

    @property
    def file(self) -> str:
        """Return the name of the file; ``-``: standard input."""
        return "-" if self.raw.file in (None, _STDIN) else str(self.raw.file)

    @property
    def name(self) -> str:
        """Return kind, namespace and name: ``Deployment ml-train/trainer``."""
        metadata = read_mapping(self.document.get("metadata"))
        name = read_text(metadata.get("name")) or f"{read_text(metadata.get('generateName'))}..."
        parts = (self.kind, f"{self.namespace}/{name}" if self.namespace else name)
        return " ".join(to_one_line(part, 2 * _SHOWN) for part in parts)

    def line(self, path: FieldPath = ()) -> int:
        """Return the line of a place of the object, or of its nearest existing parent."""
        return self.raw.line((*self.inside, *path)) or 1

    def locate(self, path: str) -> FieldPath:
        """Return the place that admission names, ``spec.template.spec.containers[0]``.

        Names of a mapping may have dots: the longest that is there counts.
        """
        found: list[str | int] = []
        here: Any = self.document
        while path:
            step: str | int
            if match := _INDEX.match(path):
                step, path = int(match[1]), path[match.end() :]
            elif isinstance(here, dict):
                names = [k for k in here if path.startswith(k) and path[len(k) :][:1] in _ENDS]
                if not names:
                    break
                name = max(names, key=len)
                step, path = name, path[len(name) :]
            else:
                break
            found.append(step)
            try:
                here = here[step]
            except (LookupError, TypeError):
                break
            path = path.removeprefix(".")
        return tuple(found)


_STDIN = "<stdin>"
_INDEX = re.compile(r"\[(\d{1,9})\]")
_ENDS = ("", ".", "[")


class Manifests(Struct, frozen=True):
    """The documents that were read."""

    objects: int
    found: tuple[Manifest, ...]
    claims: tuple[Manifest, ...] = ()

    def claims_for(self, manifest: Manifest) -> list[Mapping[str, Any]]:
        """Return the claims in the namespace of an object that names one."""
        if not self.claims or not any(
            _CLAIM_KEYS.intersection(mapping) for _, mapping in mappings(manifest.document)
        ):
            return []
        return [claim.document for claim in self.claims if claim.namespace == manifest.namespace]


def read_manifests(paths: Collection[str], namespace: str, kinds: Kinds) -> Manifests:
    """Read files, folders and standard input (``-``); the namespace is of objects without one."""
    problems = Problems()
    found: list[Manifest] = []
    claims: list[Manifest] = []
    count = 0
    for source in _sources(paths):
        for manifest in _read_source(source, namespace, kinds, problems):
            count += 1
            _refuse_templates(manifest, problems)
            if states_claims(manifest.document):
                claims.append(manifest)
            elif may_have_pods(manifest, kinds):
                found.append(manifest)
            if problems.enough:
                break
    if len(problems):
        noun = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise ManyProblems(f"{noun} in the manifests; nothing was checked", list(problems))
    if not count:
        named = ", ".join(_STDIN if path == "-" else path for path in paths)
        hint = "is the command before the pipe all right? check its exit status"
        raise BadInput(f"{named}: contains no Kubernetes object", field="FILE", hint=hint)
    return Manifests(count, tuple(found), tuple(claims))


def _sources(paths: Collection[str]) -> Iterator[Source]:
    if list(paths).count("-") > 1:
        raise BadInput("standard input can be read only once", field="FILE")
    for path in paths:
        if path != "-" and (hint := _unrendered(Path(path))):
            raise BadInput(
                f"{path} is a template; render it first", field="FILE", value=path, hint=hint
            )
    for source in read_paths(paths):
        if len(source.text) > MAX_BYTES:
            hint = "check fewer objects at a time"
            problem = f"{source.file}: is larger than {MAX_BYTES // 1024**2} MiB"
            raise BadInput(problem, field="FILE", value=source.file, hint=hint)
        yield source


def _unrendered(path: Path) -> str:
    """Return how to render a folder that a tool renders; empty text for any other path."""
    if not path.is_dir():
        return ""
    if (path / "Chart.yaml").is_file():
        return f"it is a Helm chart: helm template {path} | compatgate k8s check -"
    if any((path / f"kustomization{end}").is_file() for end in (".yaml", ".yml")):
        return f"it has a kustomization: kubectl kustomize {path} | compatgate k8s check -"
    return ""


def _read_source(
    source: Source, namespace: str, kinds: Kinds, problems: Problems
) -> Iterator[Manifest]:
    before = len(problems)
    for raw in read_nodes(source, problems, _FORM):
        for found in _objects(raw, (), raw.value, namespace, problems):
            wide = is_cluster_wide(found.group, found.kind, kinds)
            yield replace(found, namespace="") if wide else found
    if len(problems) > before:
        _explain_templates(source, problems)


def _objects(
    raw: RawDocument, inside: FieldPath, value: Any, namespace: str, problems: Problems
) -> Iterator[Manifest]:
    """Yield an object, or each object of a list.

    Source: kubectl, ``List`` of v1; other lists (``PodList``) give their items kind and version.
    """
    if not isinstance(value, dict):
        problems.add(raw.problem(inside, "is not a Kubernetes object", hint=_OBJECT_HINT))
        return
    version, kind = value.get("apiVersion"), value.get("kind")
    for key, said in (("apiVersion", version), ("kind", kind)):
        if not isinstance(said, str) or not said:
            what = "is missing" if said is None else "must be text"
            problems.add(raw.problem((*inside, key), what, value=said, hint=_OBJECT_HINT))
            return
    items = value.get("items")
    if str(kind).endswith("List") and (isinstance(items, list) or "metadata" not in value):
        given = {} if kind == "List" else {"apiVersion": version, "kind": str(kind)[:-4]}
        for index, item in enumerate(items if isinstance(items, list) else ()):
            whole = {**given, **item} if isinstance(item, dict) else item
            yield from _objects(raw, (*inside, "items", index), whole, namespace, problems)
        return
    metadata = value.get("metadata")
    if not isinstance(metadata, dict):
        what = "is missing" if metadata is None else "must be a mapping"
        problems.add(raw.problem((*inside, "metadata"), what, hint="metadata: {name: ...}"))
        return
    group, slash, _ = str(version).rpartition("/")
    own = read_text(metadata.get("namespace"))
    yield Manifest(raw, inside, value, group if slash else "", str(kind), own or namespace)


_OBJECT_HINT = "each document needs apiVersion, kind and metadata"


def is_cluster_wide(group: str, kind: str, kinds: Kinds) -> bool:
    """Tell whether objects of a kind with pods are in no namespace."""
    known = kinds.of(group, kind)
    return known is not None and known.scope == "Cluster"


def may_have_pods(manifest: Manifest, kinds: Kinds) -> bool:
    """Tell whether admission has to look at an object."""
    if (manifest.group, manifest.kind) in _DATA_KINDS:
        return False
    if kinds.of(manifest.group, manifest.kind):
        return True
    return any(_POD_KEYS.intersection(mapping) for _, mapping in mappings(manifest.document))


def names_gpus(document: Any, is_gpu: Callable[[str], bool]) -> bool:
    """Tell whether a mapping anywhere in an object has a GPU resource as its key."""
    return any(is_gpu(key) for _, mapping in mappings(document) for key in mapping)


def mappings(value: Any) -> Iterator[tuple[FieldPath, dict[str, Any]]]:
    """Yield every mapping in an object with its place, the outer ones first."""
    left: deque[tuple[FieldPath, Any]] = deque([((), value)])
    while left:
        where, here = left.popleft()
        if isinstance(here, dict):
            yield where, here
            left += [((*where, name), item) for name, item in here.items()]
        elif isinstance(here, list):
            left += [((*where, index), item) for index, item in enumerate(here)]


def _explain_templates(source: Source, problems: Problems) -> None:
    """Name the reason of mistakes on lines that a template engine should have rendered."""
    lines = source.text.splitlines()
    for problem in problems:
        if problem.file != source.file or problem.line is None:
            continue
        near = range(problem.line, max(0, problem.line - 3), -1)  # a parser stops after it
        found = next((n for n in near if n <= len(lines) and "{{" in lines[n - 1]), None)
        if found is not None:
            problem.line = found
            problem.problem = f"{problem.problem}; the file holds a template that is not rendered"
            problem.hint = _RENDER


def _refuse_templates(manifest: Manifest, problems: Problems) -> None:
    """Report template text where an object says what it is, what it runs, and on which nodes."""
    document = manifest.document
    metadata = read_mapping(document.get("metadata"))
    told: list[tuple[FieldPath, Any]] = [
        (("kind",), document.get("kind")),
        (("metadata", "name"), metadata.get("name")),
        (("metadata", "namespace"), metadata.get("namespace")),
        *_deciding(document),
    ]
    for path, said in told:
        if not isinstance(said, str):
            continue
        hint = _RENDER if _TEMPLATE.search(said) else _FILL if _VARIABLE.search(said) else ""
        if hint:
            place, what = (*manifest.inside, *path), "the template is not rendered"
            problems.add(manifest.raw.problem(place, what, value=said, hint=hint))


def _deciding(document: Mapping[str, Any]) -> Iterator[tuple[FieldPath, Any]]:
    """Yield images, amounts and labels of nodes, wherever an object has them."""
    for where, here in mappings(document):
        if isinstance(image := here.get("image"), str):
            yield (*where, "image"), image
        for key in _VALUE_KEYS:
            for name, said in read_mapping(here.get(key)).items():
                yield (*where, key, name), said
