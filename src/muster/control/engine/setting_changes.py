"""Changes of settings: each is a row of history that tells who made it, and what it changed."""

from collections.abc import Mapping

from muster.control.engine.work import Work
from muster.core.owner import Principal
from muster.core.reasons import ReasonCode, reason
from muster.core.settings import (
    SettingChange,
    SettingKind,
    SettingName,
    differences,
)

_NOTHING: Mapping[str, object] = {}


def note_change(
    work: Work,
    kind: SettingKind,
    name: str,
    before: Mapping[str, object] | None,
    after: Mapping[str, object] | None,
    *,
    by: Principal | None = None,
) -> None:
    """Take note that a setting was added, changed or removed, and tell watchers of events.

    Args:
        name: of the setting (``SettingName``).
        before, after: what it said and says, as people write it; None where it is not there.
            Secrets are not told.
        by: who changed it; left out it is who asked for the change (``Work.asker``).
    """
    if before is not None and before == after:
        return
    change = SettingChange.CHANGED
    if before is None:
        change = SettingChange.ADDED
    elif after is None:
        change = SettingChange.REMOVED
    told = differences(before or _NOTHING, after or _NOTHING)
    numbers = {**changed_by(by or work.asker), "changes": told}
    why = reason(ReasonCode.SETTING_CHANGED, **numbers)
    work.unit.note_setting(SettingName(kind, name), change, why)


def changed_by(principal: Principal | None) -> dict[str, str]:
    """The numbers of a reason that tell who changed something: nothing for the controller."""
    if principal is None:
        return {}
    owner, token = principal.owner, principal.token
    told = {"by": owner.user, "domain": owner.domain}
    return {**told, "token": token} if token is not None else told
