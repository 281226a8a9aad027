"""`make image` builds the image of deploy/compose/Dockerfile and gives it the name of the caller.

The base is a stand-in, whose ``python`` makes an environment with a ``pip`` and a ``uv`` that write
down what they are asked for: what they install in the image is not tested here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from engines import engine, import_scripts, missing

ROOT = Path(__file__).parents[3]
IMAGE = "registry.example/team/compatgate:1.2"
PIP = """\
#!/bin/sh
/bin/busybox cp /bin/uv /build/bin/uv
printf '%s\\n' "$*" > /build/asked
"""
UV = """\
#!/bin/sh
printf '%s\\n' "uv $*" >> /build/asked
case $1 in
build)
    for at in pyproject.toml compatgate/__init__.py matrix/facts canary/lib migrations; do
        [ -e "$at" ] || { echo "no $at" >&2; exit 1; }
    done
    /bin/busybox mkdir /build/dist
    echo > /build/dist/compatgate-1-py3-none-any.whl ;;
pip)
    /bin/busybox mkdir -p /opt/compatgate/bin
    /bin/busybox cp /build/asked /opt/compatgate/asked
    printf '#!/bin/sh\\n/bin/busybox cat /opt/compatgate/asked\\n' > /opt/compatgate/bin/compatgate
    /bin/busybox chmod 755 /opt/compatgate/bin/compatgate ;;
esac
"""
ASKED = """\
install --no-cache-dir --require-hashes --requirement /build/uv.txt
uv sync --frozen --no-dev --no-install-project --extra postgresql --extra kubernetes --extra oidc
uv build --wheel --require-hashes --build-constraints requirements-dev.txt --out-dir /build/dist
uv pip install --python /opt/compatgate/bin/python --no-deps \
/build/dist/compatgate-1-py3-none-any.whl
"""
FILES = {
    "bin/python": '#!/bin/sh\n/bin/busybox mkdir -p "$3/bin"\n/bin/busybox cp /bin/pip "$3/bin"\n',
    "bin/pip": PIP,
    "bin/uv": UV,
    "bin/mkdir": '#!/bin/sh\nexec /bin/busybox mkdir "$@"\n',
    "bin/sed": '#!/bin/sh\nexec /bin/busybox sed "$@"\n',
    "etc/passwd": "root:x:0:0::/:/bin/sh\n",
}


@pytest.mark.skipif(bool(missing()), reason=missing() or "-")
def test_make_image_builds_and_tags() -> None:
    with engine(in_memory=True) as made:
        base = import_scripts(made.api, "compatgate-test/base", FILES)
        done = subprocess.run(
            ["make", "image", f"IMAGE={IMAGE}", f"BASE={base}"],
            cwd=ROOT,
            env={**os.environ, "DOCKER_HOST": made.endpoint},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.endswith(f"next: docker push {IMAGE}\n")
        config = made.api.inspect_image(IMAGE)["Config"]
        assert config["User"] == "10001:10001"
        container = made.api.create_container(IMAGE, host_config=made.api.create_host_config())
        made.api.start(container)
        assert made.api.wait(container)["StatusCode"] == 0
        assert made.api.logs(container).decode() == ASKED
