"""What the API server of a cluster holds, and what it makes of requests; `api_server` serves it.

Objects are checked against Kubernetes' own schemas when they are created. Faults are put in one by
one.
"""

from __future__ import annotations

import copy
import threading
import uuid
from dataclasses import dataclass, field
from typing import Any

import kubernetes_validate

VERSIONS = ("1.30", "1.37")
KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "jobs": "Job",
    "services": "Service",
    "configmaps": "ConfigMap",
    "validatingwebhookconfigurations": "ValidatingWebhookConfiguration",
    "resourceclaims": "ResourceClaim",
    "resourceclaimtemplates": "ResourceClaimTemplate",
}
Object = dict[str, Any]
Answer = tuple[int, Object]
Key = tuple[str, str, str]
"""Kind, namespace and name; what is of the whole cluster has an empty namespace."""


@dataclass
class Fault:
    """What happens to the next request that it fits.

    ``status`` is answered; ``drop`` ends the connection after the request was carried out;
    ``cut`` ends a stream in its midst after so many lines.
    """

    method: str
    path: str
    status: int = 0
    message: str = "as the test asked"
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False
    cut: int | None = None
    query: str = ""

    def fits(self, method: str, target: str) -> bool:
        path, _, query = target.partition("?")
        return method == self.method and self.path in path and self.query in query


class Objects:
    """What the server holds, and what a test does to it."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.stored: dict[Key, Object] = {}
        self.events: list[tuple[int, str, str, Object]] = []
        """Version, kind, what happened, and the object then."""
        self.version = 1
        self.oldest = 0
        self.page = 0
        """Items on a page at most, however many are asked for; 0: as many as are."""
        self.namespaces: set[str] | None = None
        """Those that there are; None: any."""
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        self.url = ""

    def add(self, kind: str, body: Object) -> None:
        """Put an object there, new or changed, as somebody else would."""
        metadata = body["metadata"]
        key = (kind, metadata.get("namespace", ""), metadata["name"])
        with self.changed:
            what = "MODIFIED" if key in self.stored else "ADDED"
            self.version += 1
            metadata.setdefault("uid", uuid.uuid4().hex)
            metadata["resourceVersion"] = str(self.version)
            self.stored[key] = body
            self._tell(kind, what, body)

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """An object as it is now."""
        with self.changed:
            return copy.deepcopy(self.stored[kind, namespace, name])

    def names(self, kind: str) -> list[str]:
        """What is there of a kind."""
        with self.changed:
            return [name for each, _, name in self.stored if each == kind]

    def compact(self) -> None:
        """Forget what was before: a watch or a list that began there gets 410."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.changed.notify_all()

    def asked(self, method: str, part: str) -> int:
        """How many requests of a method had this in their path."""
        return sum(r.startswith(f"{method} ") and part in r for r in self.requests)

    # What the server does.

    def begin(self, method: str, target: str) -> Fault | None:
        """Note a request; the fault that it meets."""
        with self.changed:
            self.requests.append(f"{method} {target}")
            fault = next((f for f in self.faults if f.fits(method, target)), None)
            if fault:
                self.faults.remove(fault)
            return fault

    def list(self, kind: str, namespace: str | None, query: dict[str, str]) -> Answer:
        with self.changed:
            start, version = 0, self.version
            if token := query.get("continue"):
                start, version = map(int, token.split("-"))
                if version < self.oldest:
                    return refusal(410, "The provided continue parameter is too old")
            found = [
                body
                for (each, where, _), body in sorted(self.stored.items())
                if each == kind
                and namespace in (None, where)
                and fits(body, query.get("labelSelector", ""))
                and _selected(body, query.get("fieldSelector", ""))
            ]
            size = int(query.get("limit", 0)) or len(found)
            size = min(size, self.page) if self.page else size
            metadata: Object = {"resourceVersion": str(version)}
            if start + size < len(found):
                metadata["continue"] = f"{start + size}-{version}"
            kinds = {"kind": f"{KINDS[kind]}List", "apiVersion": "v1", "metadata": metadata}
            return 200, kinds | {"items": found[start : start + size]}

    def show(self, key: Key) -> Answer:
        with self.changed:
            return (200, self.stored[key]) if key in self.stored else _missing(key)

    def create(self, key: Key, body: Object) -> Answer:
        if problems := _problems(body):
            return refusal(422, problems[0])
        with self.changed:
            if key in self.stored:
                return refusal(409, f'{key[0]} "{key[2]}" already exists')
            if key[1]:
                body["metadata"].setdefault("namespace", key[1])
            self.add(key[0], body)
        return 201, body

    def replace(self, key: Key, body: Object) -> Answer:
        with self.changed:
            old = self.stored.get(key)
            if old is None:
                return _missing(key)
            if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                return refusal(409, "the object has been modified")
            self.add(key[0], body)
            return 200, body

    def patch(self, key: Key, ops: list[Object]) -> Answer:
        with self.changed:
            if key not in self.stored:
                return _missing(key)
            body = copy.deepcopy(self.stored[key])
            for op in ops:
                *path, last = (
                    part.replace("~1", "/").replace("~0", "~")
                    for part in op["path"].removeprefix("/").split("/")
                )
                inside: Any = body
                for part in path:
                    if part not in _keys(inside):
                        return refusal(422, f"{op['path']} does not exist")
                    inside = inside[int(part) if isinstance(inside, list) else part]
                assert op["op"] in ("add", "replace", "test"), op
                if op["op"] != "test":
                    inside[last] = op["value"]
                elif inside.get(last) != op["value"]:
                    return refusal(422, f"{op['path']} is not {op['value']}")
            return self.replace(key, body)

    def delete(self, key: Key, *, forced: bool) -> Answer:
        with self.changed:
            if key not in self.stored:
                return _missing(key)
            self._remove(key)
            return 200, status_of(200, "deleted")

    def _remove(self, key: Key) -> None:
        with self.changed:
            body = copy.deepcopy(self.stored.pop(key))
            self.version += 1
            body["metadata"]["resourceVersion"] = str(self.version)
            self._tell(key[0], "DELETED", body)

    def _tell(self, kind: str, what: str, body: Object) -> None:
        self.events.append((self.version, kind, what, copy.deepcopy(body)))
        self.changed.notify_all()


def status_of(code: int, message: str) -> Object:
    state = "Failure" if code >= 400 else "Success"
    return {"kind": "Status", "apiVersion": "v1", "status": state, "message": message, "code": code}


def refusal(code: int, message: str) -> Answer:
    return code, status_of(code, message)


def fits(body: Object, selector: str) -> bool:
    """Whether labels are as a selector wants: ``a=b,c``."""
    labels = body["metadata"].get("labels") or {}
    for part in filter(None, selector.split(",")):
        key, equals, value = part.partition("=")
        if key not in labels or (equals and labels[key] != value):
            return False
    return True


def _selected(body: Object, selector: str) -> bool:
    """Field selectors of the form ``status.phase!=Failed``."""
    for part in filter(None, selector.split(",")):
        path, _, value = part.partition("!=")
        assert path == "status.phase", part
        if body.get("status", {}).get("phase") == value:
            return False
    return True


def _missing(key: Key) -> Answer:
    return refusal(404, f'{key[0]} "{key[2]}" not found')


def _problems(body: Object) -> list[str]:
    """What is wrong with a new object."""
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def _keys(inside: Any) -> Any:
    """What the next part of a JSON pointer may be."""
    return [str(index) for index in range(len(inside))] if isinstance(inside, list) else inside
