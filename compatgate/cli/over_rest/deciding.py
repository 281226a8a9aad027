"""Decisions about what runs, over REST; nothing is logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from compatgate.cli.over_rest.plain import Plain
from compatgate.errors import Unavailable

if TYPE_CHECKING:
    from compatgate.core.matrix import Waiver
    from compatgate.core.verdict import Verdict
    from compatgate.documents.specs import TargetSpec


class RemoteDecider(Plain):
    """See `compatgate.gate.cluster.audit.Decider`."""

    def targets(self) -> Mapping[str, TargetSpec]:
        """Return what each target states, by name."""
        return {item.metadata.name: item.spec for item in self._client.list_targets()}

    def waivers(self) -> Mapping[str, Waiver]:
        """Every waiver, by name."""
        from compatgate.documents.convert import to_waiver
        from compatgate.documents.specs import WaiverDoc

        documents = (
            WaiverDoc(item.apiVersion, item.metadata, item.spec)
            for item in self._client.list_waivers()
        )
        return {document.metadata.name: to_waiver(document) for document in documents}

    def decide(self, body: dict[str, Any]) -> Verdict:
        """The verdict on a question.

        Raises:
            Unavailable: the gate answers with something else.
        """
        from msgspec import ValidationError, convert

        from compatgate.core.verdict import Verdict

        try:
            return convert(self._ask("preview", body), Verdict)
        except ValidationError as error:
            what = str(error).replace("`", "'")
            hint = "is it as new as this program?"
            raise Unavailable(f"the gate answers in another form: {what}", hint=hint) from None
