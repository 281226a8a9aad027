"""Systems and processors of the pools: a lock and an index of images hold a part for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from compatgate.core.request import change_pool
from compatgate.core.target import Cpu, Os, Pool
from compatgate.errors import BadInput

if TYPE_CHECKING:
    from compatgate.core.facts import Gpus

Body = dict[str, Any]


class Platforms(Struct, frozen=True):
    """What is read, and what that leaves out.

    Attributes:
        os: system that a lock is read for; ``wsl`` installs as Linux does.
        cpu: processor that a lock is read for, and that chooses from an index of images.
        all: every system and processor of the pools, the one that is read first.
        known: False where the gate does not say what pools the target has.
    """

    os: Os = "linux"
    cpu: Cpu = "x86_64"
    all: tuple[tuple[Os, Cpu], ...] = ()
    known: bool = True

    def remarks(self, what: str) -> Body:
        """What a lock or an image that holds a part for each platform says of the others.

        Args:
            what: that was read, ``uv.lock``.
        """
        read = f"{what} was read for {self.os} {self.cpu}"
        if not self.known:
            return {"unread": [f"{read}: the gate did not say which pools the target has"]}
        others = ", ".join(f"{os} {cpu}" for os, cpu in self.all[1:])
        return {"open": [f"{read}, there are pools of {others}: ask for each"]} if others else {}

    def of_processors(self) -> Platforms:
        """The same without systems: images are Linux's."""
        cpus = dict.fromkeys(cpu for _, cpu in self.all)
        return Platforms(cpu=self.cpu, all=tuple(("linux", cpu) for cpu in cpus), known=self.known)


def read_platforms(
    pools: Sequence[Mapping[str, Any]],
    target_pools: Callable[[], Sequence[Mapping[str, Any]]] | None,
    changes: Mapping[str, Any],
    gpus: Gpus,
) -> Platforms:
    """The platforms that a question is about.

    Args:
        pools: described ones.
        target_pools: asks for those of the target; None without one.
        changes: of ``--set``, which win.
        gpus: the GPU table.

    Raises:
        BadInput: a system or processor that is none.
        NotFound: there is no such target.
    """
    known = True
    if target_pools is not None:
        try:
            pools = target_pools()
        except BadInput:  # a token that may ask the gate need not read targets
            pools, known = (), "cpu" in changes
    found = [_platform(pool, changes, gpus) for pool in pools or ({},)]
    return Platforms(found[0][0], found[0][1], tuple(dict.fromkeys(found)), known)


def _platform(body: Mapping[str, Any], changes: Mapping[str, Any], gpus: Gpus) -> tuple[Os, Cpu]:
    pool = change_pool(Pool("pool", None, None), _part(body), gpus, path="pool")
    pool = change_pool(pool, _part(changes), gpus)
    return "linux" if pool.os == "wsl" else pool.os, pool.cpu


def _part(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: body[key] for key in ("gpu", "os", "cpu") if body.get(key)}
