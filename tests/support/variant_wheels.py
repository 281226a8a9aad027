"""Wheels of a package in variants, as PEP 825 and an index have them."""

from __future__ import annotations

import json
from typing import Any

from wheel_server import WheelServer
from wheels import make_wheel

SCHEMA = "https://variants-schema.wheelnext.dev/peps/825/v0.1.1.json"
NVIDIA = "nvidia_variant_provider.plugin:NvidiaVariantPlugin"
VARIANTS: dict[str, dict[str, dict[str, list[str]]]] = {
    "cu122": {"nvidia": {"cuda_version_lower_bound": ["12.2"]}},
    "cu122_sm80": {
        "nvidia": {"cuda_version_lower_bound": ["12.2"], "sm_arch": ["80_real", "89_real"]}
    },
    "cu128_sm80": {"nvidia": {"cuda_version_lower_bound": ["12.8"], "sm_arch": ["80_real"]}},
    "cu122_sm90": {"nvidia": {"cuda_version_lower_bound": ["12.2"], "sm_arch": ["90_real"]}},
    "null": {},
}


def describe(variants: dict[str, Any], plugin: str = NVIDIA) -> dict[str, Any]:
    """The metadata of variants, whose provider is a plugin."""
    provider = {"requires": [plugin.partition(".")[0].replace("_", "-")], "plugin-api": plugin}
    return {
        "$schema": SCHEMA,
        "default-priorities": {"namespace": ["nvidia"]},
        "providers": {"nvidia": provider},
        "variants": variants,
    }


def publish_variants(server: WheelServer, name: str) -> None:
    """Put a package with every variant on an index; its module says which one it is."""
    info = f"{name}-1.0.dist-info"
    for label, properties in VARIANTS.items():
        texts = {
            f"{name}.py": f"print({label!r})\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/variant.json": json.dumps(describe({label: properties})),
        }
        content = make_wheel({path: text.encode() for path, text in texts.items()}, name=name)
        wheel = f"{name}-1.0-py3-none-any-{label}.whl"
        server.add(wheel, content)
        server.metadata[wheel] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode()
    server.add(f"{name}-1.0-variants.json", json.dumps(describe(VARIANTS)).encode())
