"""The examples of docs/how-to/signing.md, run on a service of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import prepared
import pytest
from catalogue import own_cache
from image_blobs import distribution, layer_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to" / "signing.md").read_text()
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOST, IMAGE = "http://127.0.0.1:8080", "registry.example/team/app"
TORCH = {**distribution("torch", "2.4.1+cu124"), **distribution("nvidia-cudnn-cu12", "9.1.0.70")}


def examples() -> list[tuple[str, str]]:
    """Commands of the page, and what each prints."""
    found = []
    for block in BLOCK.findall(PAGE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            found.append((command, expected.strip("\n")))
    return found


def test_the_examples_print_what_the_page_says(serve: Any, registry: Any, tmp_path: Path) -> None:
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("no curl, or no openssl")
    image = registry.push(layer_of(TORCH))
    own = {"XDG_CACHE_HOME": own_cache(tmp_path / "cache"), "DOCKER_CONFIG": str(tmp_path)}
    name, tag = image.reference.rsplit(":", 1)
    address = ""
    for command, expected in examples():
        if not address and "openssl" not in command:
            options = ("--signing-key", str(tmp_path / "gate.pem"), "--registry", registry.host)
            address = f"http://127.0.0.1:{serve(*options, **own).port}"
        text = command.replace(HOST, address).replace(f"{IMAGE}:1.2", f"{name}:{tag}")
        text = re.sub(r"^compatgate ", f"{prepared.program()} ", text)
        done = subprocess.run(
            ["sh", "-c", text],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
            env={**os.environ, **own, "PYTHONPATH": str(ROOT)},
        )
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        parts = expected.replace(IMAGE, name).split("...")
        pattern = ".*".join(re.escape(part) for part in parts)
        assert re.fullmatch(pattern, done.stdout.rstrip("\n"), re.DOTALL), (
            f"{command}\n{done.stdout}"
        )


def test_there_are_examples() -> None:
    assert len(examples()) == 12


def test_every_reason_of_a_refusal_is_on_the_page() -> None:
    from typing import get_args

    from compatgate.service.attestations.envelope import Reason

    assert [reason for reason in get_args(Reason) if f"`{reason}`" not in PAGE] == []
