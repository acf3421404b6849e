"""Texts of the reasons that quotas give: why work is refused, or has to wait."""

from collections.abc import Mapping

from muster.core.reasons.codes import ReasonCode
from muster.core.reasons.definition import LIMIT as _L
from muster.core.reasons.definition import Definition

_PART = "{model:? ({model})}{in_group:? in group {in_group}}"
"""The part of a resource that a limit counts, in several sentences."""

OF_QUOTAS: Mapping[ReasonCode, Definition] = {
    ReasonCode.QUOTA_IN_USE: Definition(
        _L,
        "{resource}"
        + _PART
        + ": used {used:=} + requested {requested:=} > limit {limit:=}, over by {over:=} "
        "(quota of {level} {owner}{ahead:?, of which the work ahead that waits for machines uses a "
        "part})",
        "Nothing: it starts when enough other work of that {level} ends. An operator can raise the "
        "quota.",
    ),
    ReasonCode.MODEL_QUOTA_IN_USE: Definition(
        _L,
        "it may get {resource}" + _PART + ": used {used:=} + requested {requested:=} > limit "
        "{limit:=}, over by {over:=} (quota of {level} {owner}{ahead:?, of which the work ahead "
        "that waits for machines uses a part})",
        "Name a model with room in `gpu_model`; or wait until enough other work of that {level} "
        "ends. An operator can raise the quota.",
    ),
    ReasonCode.ABOVE_QUOTA: Definition(
        _L,
        "{resource}"
        + _PART
        + ": requested {requested:=} > limit {limit:=}, over by {over:=} (quota of "
        "{level} {owner})",
        "Ask for less, or ask an operator for a larger quota.",
    ),
    ReasonCode.ABOVE_LARGEST: Definition(
        _L,
        "{resource}"
        + _PART
        + ": requested {requested:=} > limit {limit:=} of one session, over by {over:=} "
        "(quota of {level} {owner})",
        "Ask for less, or ask an operator for a larger quota.",
    ),
    ReasonCode.TOO_MANY_PENDING: Definition(
        _L,
        "sessions waiting: {used} + requested {requested} > limit {limit}, over by {over} (quota "
        "of {level} {owner})",
        "Hand it in when some of them have started, or ask an operator for a larger quota.",
    ),
    ReasonCode.TOO_MUCH_OPEN_WORK: Definition(
        _L,
        "jobs, sessions and deployments that have not ended: {used} + requested {requested} > "
        "limit {limit}, over by {over} (quota of {level} {owner})",
        "Hand it in when some of them have ended or were cancelled, or ask an operator for a "
        "larger `open_work`.",
    ),
    ReasonCode.OPEN_SPECS_TOO_LARGE: Definition(
        _L,
        "specs of work that has not ended: {used:=} + requested {requested:=} > limit {limit:=}, "
        "over by {over:=} (quota of {level} {owner})",
        "Put large values into files that the work reads, hand it in when other work has ended or "
        "was cancelled, or ask an operator for a larger `open_specs`.",
    ),
}
