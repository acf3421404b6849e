"""All kinds of reasons by their codes, and reasons as they are stored."""

import json
from collections.abc import Mapping
from typing import Any

from muster.core import reasons
from muster.core.packages import classes_of, modules_of
from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.reason import Reason, with_numbers

CATALOGUE: Mapping[ReasonCode, type[Reason]] = {
    kind.code: kind for kind in classes_of(modules_of(reasons, "of_"), Reason)
}


def reason_of(code: ReasonCode, numbers: Mapping[str, Any]) -> Reason:
    """The reason of this code with these numbers, by name (``with_numbers``)."""
    return with_numbers(CATALOGUE[code], numbers)


def reason_from_json(code: str, numbers: str) -> Reason:
    """A reason that ``Reason.to_json`` stored, of this version or another one.

    Raises:
        ValueError: the code is not known, or the numbers are no JSON.
    """
    return reason_of(ReasonCode(code), json.loads(numbers))
