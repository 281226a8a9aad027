"""Describe the caller of a request: who it is, what it may do with which targets, and its changes.

Whoever authenticates a request makes a `Principal`; everything else only asks it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeVar

from msgspec import Struct

from compatgate.core.matrix import ANY_TARGET
from compatgate.errors import BadInput, Forbidden

PrincipalKind = Literal["anonymous", "token", "person", "job", "hook", "local"]
ScopeName = Literal[
    "read",
    "admission",
    "gate",
    "plan",
    "deliver",
    "work",
    "propose",
    "approve",
    "upgrade",
    "operate",
    "bless",
    "admin",
]
SCOPES: dict[ScopeName, str] = {
    "read": "read everything except tokens",
    "admission": "send admission reviews, as an API server does",
    "gate": "ask for verdicts; includes `admission`",
    "plan": "ask what a change would do: what-if, plans, stacks that pass, backtests",
    "deliver": "deliver the decisions of a far gate, which has the token's name",
    "work": "lease the canary runs of the staging host that has the token's name, and write them",
    "propose": "propose changes of the matrix, comment on proposals, close your own; includes"
    " `plan`",
    "approve": "approve and close proposals of others, approve upgrades of others; includes"
    " `propose` and `plan`",
    "upgrade": "propose upgrades, start their waves, stop, resume and roll back; includes `plan`",
    "operate": "submit, cancel and repeat canary runs, propose baselines, report and remove nodes,"
    " change targets where that weakens nothing; includes `propose` and `plan`",
    "bless": "change targets, entries and waivers, also by import; approve and refuse baselines,"
    " merge proposals; includes `propose`, `approve` and `plan`",
    "admin": "list, create, rotate and revoke tokens, verify the audit log, and all of the above",
}
"""The permissions of each scope; ``admin`` includes all others. Every change that decides what the
gate allows needs ``bless``."""
INCLUDED: dict[str, frozenset[str]] = {
    "gate": frozenset({"admission"}),
    "propose": frozenset({"plan"}),
    "approve": frozenset({"propose", "plan"}),
    "upgrade": frozenset({"plan"}),
    "operate": frozenset({"propose", "plan"}),
    "bless": frozenset({"propose", "approve", "plan"}),
}
"""Scopes that another scope includes: a proposal changes nothing, and who may make a change alone
may agree to it."""
TargetPatterns = tuple[str, ...]
"""Names of targets; ``*`` matches any characters."""
MAX_PATTERNS = 64
_LONGEST_REASON = 8192
_PATTERN = re.compile(r"[A-Za-z0-9*]([A-Za-z0-9._*-]{0,126}[A-Za-z0-9*])?")


class AccessRefused(Forbidden):
    """The caller is known and may not do this; the audit log notes the attempt."""

    def __init__(
        self,
        problem: str,
        *,
        principal: Principal,
        field: str | None = None,
        value: object = None,
        hint: str = "",
    ) -> None:
        super().__init__(problem, field=field, value=value, hint=hint)
        self.principal = principal


class Principal(Struct, frozen=True):
    """The caller of a request.

    Attributes:
        name: of the token or the person, as logs and revisions show it.
        scopes: that it has; ``admin`` has every one.
        targets: the only targets that it may ask about and change; None: every target; empty: none.
        kind: how it was authenticated; ``local``: whoever can open the database.
        subject: of a person, or the rule of a job, with the issuer: it stays when a name changes;
            the person whose token it is.
    """

    name: str
    scopes: frozenset[str]
    token_id: str | None = None
    targets: TargetPatterns | None = None
    kind: PrincipalKind = "token"
    subject: str = ""

    @property
    def identity(self) -> str:
        """Return the key of refused attempts, and of whose act something is."""
        return f"{self.kind}:{self.subject or self.name}"

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the caller is known as a person."""
        return names_of(self.name, self.identity)

    @property
    def is_anonymous(self) -> bool:
        """Return whether the request named nobody."""
        return self.kind == "anonymous"

    def may(self, scope: str) -> bool:
        """Return whether the caller has a scope, or one that includes it."""
        if scope in self.scopes or "admin" in self.scopes:
            return True
        return any(scope in INCLUDED.get(own, ()) for own in self.scopes)

    def require(self, scope: str) -> None:
        """Require a scope."""
        if not self.may(scope):
            hint = f"{self.name} has: {', '.join(sorted(self.scopes)) or 'none'}"
            problem = f"the scope {scope} is required"
            raise AccessRefused(problem, principal=self, field="scope", value=scope, hint=hint)

    def reaches(self, target: str) -> bool:
        """Return whether the caller may ask about and change a target.

        ``*``, for all targets, needs a caller without a limit.
        """
        if self.targets is None:
            return True
        return target != ANY_TARGET and matches(self.targets, target)

    def require_targets(self, targets: Iterable[str]) -> None:
        """Require that the caller reaches every one of these targets."""
        for target in targets:
            if not self.reaches(target):
                raise self.outside("all targets" if target == ANY_TARGET else target, target)

    def require_any(self, targets: Iterable[str], what: str) -> None:
        """Require that the caller reaches one of the targets of a document, to read it.

        A document that is for all targets may be read by everybody; ``what`` names it.
        """
        found = list(targets)
        readable = self.targets is None or ANY_TARGET in found or any(map(self.reaches, found))
        if not readable:
            raise self.outside(what, found[0] if found else None)

    def require_no_limit(self, what: str) -> None:
        """Require a caller that is not limited to targets; ``what`` concerns all of them."""
        if self.targets is not None:
            raise self.outside(what, None)

    def require_question(self, question: object, *, named: bool = False) -> None:
        """Require that the caller reaches the target of a question, as ``POST /gate`` takes it.

        Malformed questions pass: their reader refuses them. With ``named`` the question must name
        its target; else one about a pool passes, too.
        """
        if self.targets is None:
            return
        target = question.get("target") if isinstance(question, dict) else None
        if isinstance(target, str):
            self.require_targets([target])
        elif named:
            raise self.outside("a question without a target", None)

    def outside(self, what: str, target: str | None) -> AccessRefused:
        """Return the error for what is outside the limit."""
        limit = ", ".join(self.targets or ()) or "no target"
        return AccessRefused(
            f"{self.name} is limited to {limit}: {what} is outside",
            principal=self,
            field="target",
            value=target,
            hint="use a token for this target: compatgate token create --target",
        )


def anonymous_principal(scopes: Collection[str]) -> Principal:
    """Return the principal of a caller without a token."""
    return Principal("anonymous", frozenset(scopes), kind="anonymous")


def check_patterns(patterns: Iterable[str]) -> TargetPatterns:
    """Check patterns of targets, and return them sorted; at least one is needed."""
    found = tuple(sorted(set(patterns)))
    hint = "names of targets; * matches any characters, for example prod-*"
    for pattern in found:
        if not _PATTERN.fullmatch(pattern):
            raise BadInput("is not a pattern of targets", field="targets", value=pattern, hint=hint)
    if not found:
        raise BadInput("no target is given", field="targets", hint=hint)
    if len(found) > MAX_PATTERNS:
        hint = f"at most {MAX_PATTERNS}"
        raise BadInput(f"{len(found)} patterns are too many", field="targets", hint=hint)
    return found


def matches(patterns: TargetPatterns, target: str) -> bool:
    """Return whether one of the patterns matches the whole name, in its case."""
    return any(fnmatchcase(target, pattern) for pattern in patterns)


def names_of(name: str, identity: str) -> frozenset[str]:
    """Return the names by which somebody is known as a person, in lower case.

    Who shares one is the same person: two tokens of a person, or a token and the person's
    sign-in. So nobody is a second person to himself.
    """
    return frozenset((name.lower(), identity.partition(":")[2].lower()))


class Word(Protocol):
    """An event by which somebody agrees, or takes that back."""

    actor: Any
    identity: Any
    action: Any


_Word = TypeVar("_Word", bound=Word)


def list_last_words(events: Iterable[_Word], author: frozenset[str]) -> list[_Word]:
    """Return the last approval or retraction of each person; never of the author."""
    words: list[_Word] = []
    for event in events:
        names = names_of(event.actor, event.identity)
        if event.action in ("approve", "retract") and names.isdisjoint(author):
            others = (one for one in words if names.isdisjoint(names_of(one.actor, one.identity)))
            words = [*others, event]
    return words


class Authorship(Struct, frozen=True):
    """Author and reason of a change; the revision stores both.

    Without a principal, whose rights count, it is the installation itself, at its first start, or
    whoever opens the database without a server. ``force``: accept suites that nothing can run yet.
    """

    author: str
    reason: str
    principal: Principal | None = None
    force: bool = False

    @property
    def identity(self) -> str:
        """Return the key of the person, whose own agreement does not count twice."""
        return self.principal.identity if self.principal else f"local:{self.author}"

    @property
    def names(self) -> frozenset[str]:
        """Return the names by which the author is known as a person."""
        return names_of(self.author, self.identity)

    def check(self) -> Authorship:
        """Return the authorship if author and reason are valid."""
        for field, text in (("author", self.author), ("reason", self.reason)):
            if not text.strip():
                hint = "state the author and the reason"
                raise BadInput("must not be empty", field=field, hint=hint)
            require_storable(text, field, _LONGEST_REASON, f"{_LONGEST_REASON} bytes")
        return self


def require_storable(text: str, field: str, longest: int, limit: str) -> None:
    """Refuse text that the database cannot hold.

    ``longest`` is in bytes; ``limit`` says the same in words.
    """
    try:
        storable = "\0" not in text and len(text.encode()) <= longest
    except UnicodeEncodeError:
        storable = False
    if not storable:
        hint = f"Unicode text of at most {limit}, without NUL"
        raise BadInput("contains characters that cannot be stored", field=field, hint=hint)
