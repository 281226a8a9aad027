"""A Slurm of the tests' own: munge, a controller, two node daemons, two GPUs that are none."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NODES = ("n1", "n2")
_DEVICES = ("/dev/null", "/dev/zero")
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")
_PATIENCE_S = 20.0


def missing() -> str | None:
    """Why there is no Slurm here; None where there is one."""
    absent = [name for name in _PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"no {', '.join(absent)}: install Debian's slurm-wlm and munge" if absent else None


class Cluster:
    """One partition ``gpu`` of two nodes with an A100 each, ``short`` that allows a minute.

    Attributes:
        work: the directory that "is shared with the nodes".
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.configuration = folder / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(self) -> None:
        """Start everything, and wait until both nodes take jobs."""
        self._write()
        self._daemon(
            "munged", "--foreground", f"--socket={self.folder}/munge/sock", "--num-threads=2",
            f"--key-file={self.folder}/munge/key", f"--seed-file={self.folder}/munge/seed",
            f"--log-file={self.folder}/munge/log", f"--pid-file={self.folder}/munge/pid",
        )  # fmt: skip
        _until(lambda: (self.folder / "munge/sock").exists())
        self.start_controller("-c")
        for node in NODES:
            self.start_node(node)
        self.await_nodes()

    def start_controller(self, *arguments: str) -> None:
        """Start the controller; what it knew is kept, unless it is told otherwise."""
        self._daemon("slurmctld", "-D", "-i", *arguments)

    def stop_controller(self) -> None:
        """Stop the controller as systemd would."""
        self._stop("slurmctld", signal.SIGTERM)

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._daemon("slurmd", "-D", "-N", node, name=node)

    def lose_node(self, node: str) -> None:
        """The node's daemon is gone at once; the controller finds out by itself."""
        self._stop(node, signal.SIGKILL)

    def mend(self) -> None:
        """Start again what is not running."""
        if "slurmctld" not in self._daemons:
            self.start_controller()
        for node in NODES:
            if node not in self._daemons:
                self.start_node(node)
        _until(lambda: "down" not in self.ask("sinfo", "-h", "-N", "-o", "%T"))

    def await_nodes(self) -> None:
        """Wait until both nodes take jobs."""
        _until(
            lambda: self.ask("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split() == ["idle"] * 2
        )

    def ask(self, *command: str) -> str:
        """The output of one of Slurm's commands."""
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        return done.stdout

    def jobs(self) -> list[str]:
        """Names of the jobs that wait or run."""
        return self.ask("squeue", "-h", "-o", "%j").split()

    @property
    def environment(self) -> dict[str, str]:
        """For the commands."""
        return {**os.environ, "PATH": _path(), "SLURM_CONF": str(self.configuration)}

    def stop(self) -> None:
        """End every job and every daemon."""
        for job in self.ask("squeue", "-h", "-o", "%A").split():
            self.ask("scancel", job)
        with suppress(TimeoutError):
            _until(lambda: not self.jobs(), 10)
        for daemon in self._daemons.values():
            daemon.send_signal(signal.SIGTERM)
        for name in reversed(list(self._daemons)):
            self._stop(name, signal.SIGTERM)

    def _daemon(self, program: str, *arguments: str, name: str = "") -> None:
        name = name or program
        with (self.folder / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(
                [shutil.which(program, path=_path()) or program, *arguments],
                env=self.environment, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def _stop(self, name: str, how: signal.Signals) -> None:
        daemon = self._daemons.pop(name, None)
        if daemon is None:
            return
        daemon.send_signal(how)
        try:
            daemon.wait(10)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()

    def _write(self) -> None:
        self.folder.chmod(0o755)
        for name in ("munge", "state", "work", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        key = self.folder / "munge/key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o600)
        user = pwd.getpwuid(os.getuid()).pw_name
        controller, *ports = _free_ports(1 + len(NODES))
        nodes = "\n".join(
            f"NodeName={node} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 "
            "RealMemory=2000 Gres=gpu:a100:1 Feature=a100"
            for node, port in zip(NODES, ports, strict=True)
        )
        self.configuration.write_text(
            _CONFIGURATION.format(folder=self.folder, user=user, port=controller, nodes=nodes)
        )
        (self.folder / "oci.conf").write_text(_RUNTIME.format(folder=self.folder))
        (self.folder / "runtime").write_text(_RUN)
        (self.folder / "runtime").chmod(0o755)
        (self.folder / "gres.conf").write_text(
            "".join(
                f"NodeName={node} Name=gpu Type=a100 File={device}\n"
                for node, device in zip(NODES, _DEVICES, strict=True)
            )
        )


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A running cluster."""
    # Short, as munge's socket is in it.
    folder = Path(tempfile.mkdtemp(prefix="compatgate-slurm-"))
    running = Cluster(folder)
    try:
        running.start()
        yield running
    finally:
        running.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def _until(holds: Callable[[], bool], patience: float = _PATIENCE_S) -> None:
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {patience} s")
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


_CONFIGURATION = """\
ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,bf_interval=1
ReturnToService=2
SlurmdTimeout=5
KillWait=2
MessageTimeout=2
MinJobAge=60
{nodes}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=1 State=UP
"""
# As in Slurm's guide to containers, for runc.
_RUNTIME = """\
RunTimeQuery="runc state %n.%u.%j.%s.%t"
RunTimeKill="runc kill -a %n.%u.%j.%s.%t"
RunTimeDelete="runc delete --force %n.%u.%j.%s.%t"
RunTimeRun="{folder}/runtime %n.%u.%j.%s.%t %b %r"
"""
# Slurm 22.05 writes BUNDLE/rootfs as the root's path, whatever it was; %r is what it was.
_RUN = """\
#!/bin/sh
sed -i "s|\\"path\\": \\"[^\\"]*rootfs\\"|\\"path\\": \\"$3\\"|" "$2/config.json"
exec runc run "$1" -b "$2"
"""
