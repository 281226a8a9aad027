"""A question as data: one line of ``compatgate require --batch``."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from compatgate.core.requirements.evaluate import check
from compatgate.core.requirements.model import Answer, Impl, Properties


class Question(Struct, frozen=True, forbid_unknown_fields=True):
    """Requirements and the host to check them against; a property that is absent is not known."""

    require: list[str]
    impl: Impl | UnsetType = UNSET
    cuda: str | None = None
    driver: str | None = None
    arch: str | None = None
    brand: str | None = None

    def answer(self, impl: Impl = "go") -> Answer:
        """The answer of `check`; `impl` is whose reading where the question leaves it open."""
        host = Properties(self.cuda, self.driver, self.arch, self.brand)
        return check(self.require, host, impl if self.impl is UNSET else self.impl)
