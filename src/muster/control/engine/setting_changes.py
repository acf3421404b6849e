"""Changes of settings: each is a row of history that tells who made it, and what it changed."""

from collections.abc import Mapping

from muster.control.engine.work import Work
from muster.core.owner import Principal
from muster.core.reasons.of_settings import SettingChanged
from muster.core.settings import (
    Difference,
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
    why = _changed(by or work.asker, told)
    work.unit.note_setting(SettingName(kind, name), change, why)


def _changed(by: Principal | None, told: tuple[Difference, ...]) -> SettingChanged:
    """The reason that somebody, or with None the controller, changed a setting."""
    if by is None:
        return SettingChanged(changes=told)
    return SettingChanged(by=by.owner.user, domain=by.owner.domain, token=by.token, changes=told)
