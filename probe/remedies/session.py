"""A running target whose operators are a remedy's: everything that takes a session takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probe.launch import Answer, AnySession, Arrays


class Remedied:
    """``session`` with ``remedy``, see ``probe.backends.remedied``, in every spec that it is sent.

    ``convolutions``: in those of convolutions alone, also where a whole network is sent. Everything
    else is the session's own; both may be used in turns.
    """

    def __init__(
        self, session: AnySession, remedy: Mapping[str, Any], convolutions: bool = False
    ) -> None:
        self.session, self.remedy = session, dict(remedy)
        self.convolutions = convolutions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        """As ``Session.request``."""
        return self.session.request(self._with(header), arrays)

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        """As ``Session.stream``."""
        return self.session.stream(self._with(header), arrays)

    def _with(self, header: Mapping[str, Any]) -> dict[str, Any]:
        asked = dict(header)
        if "spec" in asked:
            asked["spec"] = self._remedied(asked["spec"])
        if "specs" in asked:
            asked["specs"] = [self._remedied(spec) for spec in asked["specs"]]
        return asked

    def _remedied(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if self.convolutions and "conv" not in spec["op"]:
            return dict(spec)
        return {**spec, "remedy": self.remedy}
