"""Bodies that were made for one reader each: questions, admission reviews, nodes, matrix files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from hostile_values import JSON, ROOM, Attack

from compatgate.kit.http.route import MAX_REQUEST_SIZE


def _gate(**body: Any) -> bytes:
    return msgspec.json.encode(body)


_POOL = {"driver": "535.104.05", "gpu": "A100-SXM4-80GB"}


def questions() -> Iterator[tuple[str, bytes]]:
    """Questions at and beyond the limits of what a question may hold."""
    stack = {"cuda": "12.4", "torch": "2.4.1+cu124", "arch": ["sm_80"]}
    for count in (256, 4_000, 40_000):
        for key in ("stack", "set"):
            unknown = {f"n{n}": f"1.{n}" for n in range(count)}
            yield f"{count} packages in {key}", _gate(pool=_POOL, **{"stack": stack, key: unknown})
            yield (
                f"{count} packages of a target in {key}",
                _gate(target="prod-a100", **{"stack": stack, key: unknown}),
            )
        near = {f"nvidia-cudn{n}-cu12": f"9.{n}" for n in range(count)}
        yield f"{count} names near to known ones", _gate(pool=_POOL, stack=near)
        text = " ".join(f"cuda>={n % 13}.9,driver>={n}" for n in range(count))
        yield f"{count} alternatives", _gate(pool=_POOL, stack={**stack, "require": [text]})
        yield (
            f"{count} requirements",
            _gate(pool=_POOL, stack={**stack, "require": [f"cuda>={n}.1" for n in range(count)]}),
        )
        conditions = ",".join(f"driver>={n}" for n in range(count))
        yield f"{count} conditions", _gate(pool=_POOL, stack={**stack, "require": [conditions]})
        yield (
            f"{count} architectures",
            _gate(pool=_POOL, stack={**stack, "arch": [f"sm_{n}" for n in range(10, count + 10)]}),
        )
        yield (
            f"{count} architectures of parts",
            _gate(
                pool=_POOL,
                stack={f"n{n}": f"1.0[{'+'.join(['sm_80'] * 40)}]" for n in range(count // 40 + 1)},
            ),
        )
        yield f"{count} sentences", _gate(pool=_POOL, stack={**stack, "open": ["x y z"] * count})
        yield (
            f"{count} conflicts",
            _gate(pool=_POOL, stack={**stack, "conflicts": ["y" * 20] * count}),
        )
        wheels = {
            f"n{n}": {
                "file": f"n{n}-1.0-py3-none-any.whl",
                "sha256": "0" * 64,
                "index": "https://x",
            }
            for n in range(count // 8)
        }
        yield f"{count // 8} wheels", _gate(pool=_POOL, stack={**stack, "wheels": wheels})
        yield f"{count} pools", _gate(target="prod-a100", stack=stack, pools=["p"] * count)
        yield (
            f"{count} known packages",
            _gate(
                pool=_POOL,
                stack=dict.fromkeys(_known_names()[: count // 4], "99.99"),
            ),
        )
    for name, version in (
        ("dots", "1" + ".1" * 120),
        ("digits", "9" * 250),
        ("label", "1.0+" + "a." * 120 + "a"),
        ("zeros", "0." * 120 + "1"),
        ("dashes", "1" + "-1" * 120),
        ("post", "1" + ".post1" * 40),
    ):
        known = dict.fromkeys((*_known_names()[:200],), version)
        yield f"versions of {name}", _gate(pool=_POOL, stack=known)
        yield (
            f"versions of {name} for components",
            _gate(
                pool={**_POOL, "driver": version},
                stack=dict.fromkeys(
                    ("cuda", "cudnn", "nccl", "torch", "python", "cuda-compat"), version
                ),
            ),
        )
    yield "a long image", _gate(target="prod-a100", stack=stack, image="a/" * 4000 + "b:1")
    yield "an image of stars", _gate(target="prod-a100", stack=stack, image="*" * 8000)
    record = {
        "version": "1.0",
        "requires": [f"n{n}>=1" for n in range(20_000)],
        "libraries": [],
    }
    yield (
        "a record with many requirements",
        _gate(pool=_POOL, stack={"xformers": "1.0", "measured": {"xformers": record}}),
    )
    library = {"path": "lib/a.so", "needs": ["libcudart.so.12"] * 10, "sass": {"sm_80": 1}}
    for count in (200, 2_000, 10_000):
        many = [{**library, "path": f"lib/a{n}.so"} for n in range(count)]
        yield (
            f"a record of {count} libraries",
            _gate(
                pool=_POOL,
                stack={
                    "xformers": "1.0",
                    "measured": {"xformers": {"version": "1.0", "libraries": many}},
                },
            ),
        )
        one = {"path": "a.so", "sass": {f"sm_{n}": 1 for n in range(10, count + 10)}}
        yield (
            f"a record of {count} architectures",
            _gate(
                pool=_POOL,
                stack={
                    "xformers": "1.0",
                    "measured": {"xformers": {"version": "1.0", "libraries": [one]}},
                },
            ),
        )


@cache
def _known_names() -> list[str]:
    from compatgate.catalog import load_facts

    return sorted(load_facts(()).packages.by_name)


def of_questions() -> Iterator[Attack]:
    """Questions to the gate; also as previews."""
    for name, body in questions():
        if len(body) <= MAX_REQUEST_SIZE:
            yield Attack(f"POST /gate: {name}", "POST", "/api/v1/gate", body)
            yield Attack(f"POST /gate/preview: {name}", "POST", "/api/v1/gate/preview", body)


def _review(spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "operation": "CREATE",
            "namespace": "ml-train",
            "object": {"metadata": {"name": "x", **metadata}, "spec": spec},
        },
    }


def reviews() -> Iterator[tuple[str, Any]]:
    """Admission reviews of one object that is many."""
    gpu = {"limits": {"nvidia.com/gpu": "1"}}
    stack = "cuda=12.4,cudnn=9.1.0,torch=2.4.1+cu124"
    marks = {"compatgate.dev/target": "prod-a100"}
    for count in (100, 1_000, 10_000):
        containers = [
            {"name": f"c{n}", "image": f"registry.example/a{n}:1", "resources": gpu}
            for n in range(count)
        ]
        yield f"{count} containers", _review({"containers": containers}, annotations=marks)
        yield f"{count} containers without a target", _review({"containers": containers})
        stacks = {
            f"compatgate.dev/stack.c{n}": f"cuda=12.4,cudnn=9.{n % 10}.{n},n{n}=1.{n}"
            for n in range(count)
        }
        yield (
            f"{count} stacks",
            _review({"containers": containers}, annotations={**marks, **stacks}),
        )
        yield (
            f"{count} init containers",
            _review(
                {"containers": containers[:1], "initContainers": containers}, annotations=marks
            ),
        )
        env = [
            {"name": f"NVIDIA_REQUIRE_{n}", "value": "cuda>=12.4 brand=tesla"} for n in range(count)
        ]
        one = {"name": "a", "image": "r.example/a:1", "resources": gpu, "env": env}
        yield (
            f"{count} variables",
            _review({"containers": [one]}, annotations={**marks, "compatgate.dev/stack": stack}),
        )
        terms = [
            {"matchExpressions": [{"key": f"k{n}", "operator": "In", "values": [f"v{n}"]}]}
            for n in range(count)
        ]
        affinity = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}
            }
        }
        yield f"{count} terms", _review({"containers": containers[:1], "affinity": affinity})
        selector = {f"k{n}": f"v{n}" for n in range(count)}
        yield (
            f"{count} selectors",
            _review({"containers": containers[:10], "nodeSelector": selector}),
        )
        claims = [{"name": f"c{n}", "resourceClaimTemplateName": "x"} for n in range(count)]
        yield f"{count} claims", _review({"containers": containers[:1], "resourceClaims": claims})
        tolerations = [{"key": f"k{n}", "operator": "Exists"} for n in range(count)]
        yield (
            f"{count} tolerations",
            _review({"containers": containers[:1], "tolerations": tolerations}),
        )
        replicated = {
            "replicatedJobs": [
                {
                    "name": f"j{n}",
                    "template": {"spec": {"template": {"spec": {"containers": containers[:1]}}}},
                }
                for n in range(min(count, 3000))
            ]
        }
        review = _review(replicated, annotations=marks)
        review["request"]["kind"] = {
            "group": "jobset.x-k8s.io",
            "version": "v1alpha2",
            "kind": "JobSet",
        }
        yield f"{count} jobs", review
    many = [{"name": f"c{n}", "image": "r.example/a:1", "resources": gpu} for n in range(90_000)]
    yield "90000 containers", _review({"containers": many})
    yield "an object of 8 MB", _review({"containers": many[:1], "x": ["y" * 1000] * 7_000})
    yield "lists of 8 MB", _review({"containers": many[:1], "x": [[]] * 2_000_000})
    yield "a long uid", {**_review({}), "request": {"uid": "u" * ROOM}}


def of_hooks() -> Iterator[Attack]:
    """Admission, nodes and deploy webhooks."""
    for name, review in reviews():
        body = msgspec.json.encode(review)
        yield Attack(
            f"POST admission: {name}", "POST", "/hooks/kubernetes/validate?timeout=10s", body
        )
    for count in (100, 1_000, 5_000):
        nodes = [
            {
                "name": f"gpu-{n}",
                "labels": {"nvidia.com/gpu.product": f"A100-SXM4-80GB-{n}"},
                "probe": {"driver": f"550.{n}", "gpus": [{"gpu": f"Unknown {n}", "count": 8}]},
            }
            for n in range(count)
        ]
        yield Attack(
            f"POST /nodes: {count} nodes", "POST", "/api/v1/nodes",
            msgspec.json.encode({"cluster": "c", "nodes": nodes}),
        )  # fmt: skip
    labels = {f"nvidia.com/mig-{n}g.5gb.count": "1" for n in range(10_000)}
    for path in ("/api/v1/what-if", "/api/v1/nodes"):
        node = {"name": "x", "labels": labels}
        body = (
            {"node": {"labels": labels}, "set": {"driver": "580.95.05"}}
            if path.endswith("if")
            else {"cluster": "c", "nodes": [node]}
        )
        yield Attack(f"POST {path}: many labels", "POST", path, msgspec.json.encode(body))


def documents() -> Iterator[tuple[str, bytes, str]]:
    """Matrix files: many documents, aliases, patterns, versions, and YAML that is slow to read."""
    for count in (300, 3_000, 30_000):
        entries = [
            {
                "apiVersion": "compatgate.dev/v1", "kind": "Entry", "metadata": {"name": f"e{n}"},
                "spec": {"targets": ["prod-a100"], "components": {"cuda": f"12.{n}"},
                         "status": "candidate", "reason": "x"},
            }
            for n in range(count)
        ]  # fmt: skip
        body = msgspec.json.encode(entries)
        if len(body) <= MAX_REQUEST_SIZE:
            yield f"{count} entries", body, JSON
        yield f"{count} wrong documents", msgspec.json.encode([{"kind": "X"}] * count), JSON
        components = {f"n{n}": ">=1,<2" for n in range(count)}
        spec = {**entries[0]["spec"], "components": components}
        yield f"{count} components", msgspec.json.encode([{**entries[0], "spec": spec}]), JSON
        pools = [
            {"name": f"p{n}", "gpu": f"A100-{n}", "driver": "535.1"} for n in range(count // 3)
        ]
        target = {"apiVersion": "compatgate.dev/v1", "kind": "Target", "metadata": {"name": "t"},
                  "spec": {"pools": pools}}  # fmt: skip
        yield f"{count // 3} pools", msgspec.json.encode([target]), JSON
    yaml = "application/yaml"
    yield "aliases", b"a: &a [" + b"x," * 9 + b"x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 10)) for n in range(9)
    ), yaml  # fmt: skip
    yield "flow", b"[" * 50_000, yaml
    yield "indents", b"".join(b" " * n + b"a:\n" for n in range(1200)), yaml
    yield "many lines", b"a: 1\n" * (ROOM // 6), yaml
    yield "many documents", b"---\n" * (ROOM // 4), yaml
    yield "many small maps", b"- {a: 1}\n" * (ROOM // 9), yaml
    yield "unique keys", b"".join(b"k%d: 1\n" % n for n in range(ROOM // 12)), yaml
    yield "quotes", b'"' + b"a\n" * (ROOM // 2), yaml
    yield "numbers", b"".join(b"- 1:%d:59\n" % n for n in range(ROOM // 16)), yaml
    yield "a huge number", b"a: 0x" + b"f" * ROOM, yaml
    yield "digits", b"a: " + b"9" * ROOM, yaml
    yield "comments", b"# x\n" * (ROOM // 4), yaml
    yield "merges", b"a: &a {b: 1}\n" + b"c: {<<: *a}\n" * (ROOM // 12), yaml


def of_documents() -> Iterator[Attack]:
    """Imports of the matrix, as rehearsals and in earnest; and of baselines."""
    for name, body, media in documents():
        headers = {"X-Compatgate-Reason": "hostile"}
        for query in ("?dry_run=true",):
            path = f"/api/v1/matrix/import{query}"
            yield Attack(f"POST {path}: {name}", "POST", path, body, media, headers)
    lines = '{"type":"baselines","compatgate":"0.1.0","exported_at":"2026-11-21T20:16:37Z"}\n'
    for name, text in (
        ("many lines", lines + "{}\n" * (ROOM // 6)),
        ("values", lines + json.dumps({"type": "baseline", "values": [1.5] * (ROOM // 6)})),
        ("digits", lines + "9" * ROOM),
        ("deep", lines + "[" * ROOM),
    ):
        body = msgspec.json.encode({"files": [{"name": "b.jsonl", "text": text}]})
        yield Attack(f"POST /baselines/import: {name}", "POST", "/api/v1/baselines/import", body)
