"""Write a message in the form of its channel: JSON, e-mail, Slack blocks, a Teams card.

Names and messages come from others, so each form escapes them: nothing in them becomes a link or a
mention. Sources: Slack, "Block Kit" and "Incoming webhooks" (3,000 characters a section, 150 a
header, 50 blocks); Microsoft, "Create incoming webhooks with Workflows for Microsoft Teams" and
"Adaptive Cards" (28 kB a message).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

import msgspec
from msgspec import Struct

from compatgate.core.incidents import TITLES, IncidentKind, IncidentLevel
from compatgate.kit.clock import iso
from compatgate.service.notices.models import IncidentRow
from compatgate.service.notices.schemas import Urgency

MAX_NOTICES = 50
"""Notices of a message; the others are counted."""
SCHEMA = "compatgate.dev/notice/v1"
_MAX_MEMBERS = 10
_MAX_TARGETS = 50
_MAX_IN_CHAT = 15
_LONGEST = 400
_HEADER = 150
_SIGNS: dict[IncidentLevel, str] = {"fail": "✗", "warn": "!", "info": "i"}
_COLOURS: dict[IncidentLevel, str] = {"fail": "Attention", "warn": "Warning", "info": "Accent"}
_TEST = "This is a test. The channel works."


class NoticeMember(Struct, frozen=True):
    """An object that a notice is about."""

    about: str
    name: str
    note: str
    owner: str | None = None


class Notice(Struct, frozen=True):
    """News of an incident.

    Attributes:
        incident: its number.
        episode: one more each time that it happens again.
        members: that are news, at most ten.
        left: number of members that are not named.
    """

    incident: int
    episode: int
    kind: IncidentKind
    level: IncidentLevel
    message: str
    count: int
    owners: tuple[str, ...]
    targets: tuple[str, ...]
    first_seen: datetime
    last_seen: datetime
    members: tuple[NoticeMember, ...]
    left: int = 0

    @property
    def text(self) -> str:
        """Return a sentence: of the only member, or of all."""
        if len(self.members) == 1 and not self.left:
            return f"{self.members[0].name}: {self.members[0].note}"
        return self.message


class Message(Struct, frozen=True):
    """A message to a channel, whatever its form.

    Attributes:
        id: of the delivery; the same however often it is sent.
        subscription: None: a test.
        left: number of notices that are not in it.
    """

    id: str
    subscription: str | None
    urgency: Urgency
    made_at: datetime
    notices: tuple[Notice, ...]
    left: int = 0

    @property
    def title(self) -> str:
        """Return a headline."""
        if self.subscription is None:
            return "compatgate: test message"
        number = len(self.notices) + self.left
        kinds = dict.fromkeys(TITLES[one.kind] for one in self.notices)
        if len(kinds) != 1:
            return f"compatgate: {number} incidents need attention"
        return f"compatgate: {next(iter(kinds))}" + (f" ({number})" if number > 1 else "")


def make_notice(row: IncidentRow, told: Sequence[str]) -> Notice:
    """Return the news of an incident.

    Args:
        row: with all its members.
        told: names of the members that are news.
    """
    wanted = set(told)
    new = [one for one in row.members if one.name in wanted] or [*row.members]
    named = tuple(
        NoticeMember(one.about, one.name, one.note, one.owner) for one in new[:_MAX_MEMBERS]
    )
    return Notice(
        row.id,
        row.episode,
        row.kind,
        row.level,
        row.message,
        row.count,
        tuple(dict.fromkeys(one.owner for one in new if one.owner)),
        tuple(dict.fromkeys(target for one in new for target in one.targets))[:_MAX_TARGETS],
        row.first_seen,
        row.last_seen,
        named,
        max(0, len(new) - len(named)),
    )


def incident_link(base: str, number: int) -> str | None:
    """Return the address of an incident's page; None: the service does not know its own."""
    return f"{base.rstrip('/')}/ui/incidents/{number}" if base else None


def to_json(message: Message, base: str) -> bytes:
    """Return the body of a webhook: the same bytes however often it is sent.

    Args:
        message: to write.
        base: address of the service, for links; empty: there are none.
    """
    body = {
        "schema": SCHEMA,
        "id": message.id,
        "test": message.subscription is None,
        "subscription": message.subscription,
        "urgency": message.urgency,
        "made_at": iso(message.made_at),
        "title": message.title,
        "notices": [
            {
                **msgspec.to_builtins(one),
                "first_seen": iso(one.first_seen),
                "last_seen": iso(one.last_seen),
                "title": TITLES[one.kind],
                "text": one.text,
                "url": incident_link(base, one.incident),
            }
            for one in message.notices
        ],
        "left": message.left,
    }
    return msgspec.json.encode(body)


def _shorten(text: str, most: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _owners(one: Notice) -> str:
    return f" (owner: {', '.join(one.owners)})" if one.owners else ""


def _foot(message: Message, shown: int) -> str:
    left = len(message.notices) - shown + message.left
    note = _TEST if message.subscription is None else f"Subscription: {message.subscription}"
    return " · ".join(filter(None, (f"and {left:,} more" if left else "", message.urgency, note)))


def to_text(message: Message, base: str) -> str:
    """Return a message as plain text; arguments as `to_json`."""
    if message.subscription is None:
        return f"{_TEST}\n"
    lines = [f"{message.title}\n"]
    for one in message.notices:
        lines.append(f"[{one.level}] {TITLES[one.kind]}: {_shorten(one.text, 2 * _LONGEST)}")
        if len(one.members) > 1:
            lines += [f"    {member.name}: {_shorten(member.note)}" for member in one.members]
            if one.left:
                lines.append(f"    and {one.left:,} more")
        if one.owners:
            lines.append(f"    owner: {', '.join(one.owners)}")
        lines.append(f"    first seen: {one.first_seen:%Y-%m-%d %H:%M} UTC")
        if place := incident_link(base, one.incident):
            lines.append(f"    {place}")
        lines.append("")
    lines.append(_foot(message, len(message.notices)))
    return "\n".join(lines) + "\n"


def to_email(message: Message, base: str, sender: str, recipients: Sequence[str]) -> EmailMessage:
    """Return a message as an e-mail; its Message-ID is the same however often it is sent."""
    mail = EmailMessage()
    mail["Subject"] = _shorten(f"[{message.urgency}] {message.title}", _HEADER)
    mail["From"] = sender
    mail["To"] = ", ".join(recipients)
    mail["Date"] = format_datetime(message.made_at)
    mail["Message-ID"] = f"<{message.id}@{sender.rpartition('@')[2].rstrip('>') or 'compatgate'}>"
    mail["Auto-Submitted"] = "auto-generated"
    if message.urgency == "page":
        mail["Importance"] = "high"
    mail.set_content(to_text(message, base))
    return mail


def _escape_slack(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def to_slack(message: Message, base: str) -> dict[str, Any]:
    """Return a message for a Slack incoming webhook, as blocks; arguments as `to_json`."""
    header = {"type": "plain_text", "text": _shorten(message.title, _HEADER), "emoji": False}
    blocks: list[dict[str, Any]] = [{"type": "header", "text": header}]
    shown = message.notices[:_MAX_IN_CHAT]
    for one in shown:
        text = f"{_SIGNS[one.level]} {_escape_slack(_shorten(one.text) + _owners(one))}"
        if place := incident_link(base, one.incident):
            text += f" <{place}|Open>"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    foot = {"type": "plain_text", "text": _foot(message, len(shown)), "emoji": False}
    blocks.append({"type": "context", "elements": [foot]})
    return {"text": _escape_slack(message.title), "blocks": blocks}


def to_teams(message: Message, base: str) -> dict[str, Any]:
    """Return a message for a workflow of Teams, as an Adaptive Card; arguments as `to_json`.

    Text stands in runs, which Teams does not read as Markdown.
    """
    shown = message.notices[:_MAX_IN_CHAT]
    title = {"type": "TextRun", "text": _shorten(message.title, _HEADER), "weight": "Bolder"}
    body: list[dict[str, Any]] = [{"type": "RichTextBlock", "inlines": [title]}]
    for one in shown:
        sign = {
            "type": "TextRun",
            "text": f"{_SIGNS[one.level]} ",
            "weight": "Bolder",
            "color": _COLOURS[one.level],
        }
        text: dict[str, Any] = {"type": "TextRun", "text": _shorten(one.text) + _owners(one)}
        if place := incident_link(base, one.incident):
            text["selectAction"] = {"type": "Action.OpenUrl", "url": place}
        body.append({"type": "RichTextBlock", "inlines": [sign, text]})
    foot = {"type": "TextRun", "text": _foot(message, len(shown)), "isSubtle": True}
    body.append({"type": "RichTextBlock", "inlines": [foot]})
    card: dict[str, Any] = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "msteams": {"width": "Full"},
        "body": body,
    }
    if base:
        place = f"{base.rstrip('/')}/ui/"
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Open compatgate", "url": place}]
    kind = "application/vnd.microsoft.card.adaptive"
    return {
        "type": "message",
        "attachments": [{"contentType": kind, "contentUrl": None, "content": card}],
    }
