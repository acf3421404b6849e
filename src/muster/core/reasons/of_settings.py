"""Reasons of settings: who changed one."""

from dataclasses import dataclass, field

from muster.core.reasons.codes import ReasonCode, ReasonKind
from muster.core.reasons.reason import PRIVATE, Reason
from muster.core.reasons.wording import differences
from muster.core.settings import Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChanged(Reason):
    code = ReasonCode.SETTING_CHANGED
    kind = ReasonKind.WAITING

    by: str | None = None
    domain: str | None = field(default=None, metadata=PRIVATE)
    token: str | None = field(default=None, metadata=PRIVATE)
    changes: tuple[Difference, ...]

    def sentence(self) -> str:
        said = f"by {self.by or 'the controller'}"
        if self.changes:
            said += ": "
        return said + differences(self.changes)
