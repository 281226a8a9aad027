"""What a container may not do: each attempt is stopped, and the program sees it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engines import Engine

from compatgate.canary.executors import Job, Status
from compatgate.canary.executors.docker import DockerExecutor

Make = Callable[..., Job]
TRY = """
import errno
try:
    {}
except OSError as error:
    print(errno.errorcode.get(error.errno, error))
else:
    print("DONE")
"""


@pytest.mark.parametrize(
    ("attempt", "stopped"),
    [
        ("import socket; socket.create_connection(('1.1.1.1', 80), 5)", b"ENETUNREACH"),
        ("import socket; socket.getaddrinfo('example.org', 80)", b"Temporary failure"),
        ("open('/root-file', 'w')", b"EROFS"),
        ("open('/usr/local/lib/x', 'w')", b"EROFS"),
        ("open('/compatgate/program.py', 'w')", b"EROFS"),
        ("open('/compatgate/new', 'w')", b"EROFS"),
        ("import os; os.setuid(0)", b"EPERM"),
        ("import os; os.chroot('/tmp')", b"EPERM"),
        ("import os; os.mknod('/tmp/x', 0o20666, os.makedev(1, 1))", b"EPERM"),
        ("open('/proc/sys/kernel/hostname', 'w')", b"EROFS"),
        ("open('/tmp/big', 'wb').write(bytes(20 << 20))", b"ENOSPC"),
        ("open('/dev/shm/big', 'wb').write(bytes(20 << 20))", b"ENOSPC"),
    ],
)
def test_an_attempt_is_stopped(
    docker: DockerExecutor,
    job: Make,
    run: Callable[..., object],
    attempt: str,
    stopped: bytes,
) -> None:
    ran = run(docker, job(TRY.format(attempt)))
    assert ran.output.startswith((stopped, b"[Errno -3] " + stopped)), ran.output


def test_only_the_loopback_interface_is_there(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    ran = run(docker, job("import socket; print(socket.if_nameindex())"))
    assert ran.output == b"[(1, 'lo')]\n"


def test_a_fork_bomb_reaches_its_limit_and_ends_with_its_container(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = """
import os, time
made = 0
try:
    while made < 5000:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except OSError as error:
    print("stopped after", made, error.strerror)
"""
    ran = run(docker, job(program))
    assert ran.status == Status("exited", 0)
    assert ran.output.startswith(b"stopped after ")
    assert int(ran.output.split()[2]) < 64


def test_a_program_is_nobody_without_capabilities_and_cannot_gain_any(
    docker: DockerExecutor, job: Make, run: Callable[..., object]
) -> None:
    program = """
import os
status = dict(l.split(":", 1) for l in open("/proc/self/status").read().splitlines())
print(os.getuid(), os.getgid(), [int(status[k], 16) for k in ("CapEff", "CapPrm", "CapBnd")],
      status["NoNewPrivs"].strip(), status["Seccomp"].strip())
"""
    assert run(docker, job(program)).output == b"65534 65534 [0, 0, 0] 1 2\n"
    as_root = run(docker, job(program, user="image")).output
    assert as_root == b"0 0 [0, 0, 0] 1 2\n"


def test_nothing_of_the_worker_or_the_host_is_in_the_container(
    docker: DockerExecutor,
    job: Make,
    run: Callable[..., object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COMPATGATE_TOKEN", "secret")
    program = """
import os
print("COMPATGATE_TOKEN" in os.environ, os.environ["NVIDIA_VISIBLE_DEVICES"])
mounts = [l.split() for l in open("/proc/mounts")]
print([m[1] for m in mounts if m[0].startswith("/dev/") and not m[1].startswith("/etc/")])
"""
    assert run(docker, job(program)).output == b"False void\n['/compatgate']\n"


def test_an_images_volumes_are_not_on_the_hosts_disk(
    docker: DockerExecutor, job: Make, run: Callable[..., object], gpu_engine: Engine
) -> None:
    from engines import PYTHON, load_python

    before = gpu_engine.everything()
    load_python(gpu_engine.api, repository="compatgate-test/volume", changes=["VOLUME /data"])
    program = "print([l.split()[2] for l in open('/proc/mounts') if l.split()[1] == '/data'])"
    ran = run(docker, job(program, image="compatgate-test/volume:1"))
    assert ran.output == b"['tmpfs']\n"
    docker.clean(ran.handle.run)
    gpu_engine.api.remove_image("compatgate-test/volume:1", force=True)
    assert gpu_engine.everything() == before
    assert PYTHON
