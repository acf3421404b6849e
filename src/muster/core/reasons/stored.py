"""A reason as a part of a larger value that is stored as JSON."""

from dataclasses import dataclass
from typing import Any

from muster.core.reasons.catalogue import reason_of
from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.reason import Reason


@dataclass(frozen=True, slots=True)
class StoredReason:
    """A reason by its code and its numbers, which JSON can be read into without knowing the kind
    of reason."""

    code: ReasonCode
    numbers: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(reason: Reason) -> "StoredReason":
        return StoredReason(reason.code, tuple(reason.numbers().items()))

    def reason(self) -> Reason:
        return reason_of(self.code, dict(self.numbers))
