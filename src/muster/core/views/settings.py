"""Changes of settings, as the API tells them."""

from muster.core.views.base import View


class DifferenceView(View):
    """A key of a setting, with what it said before and what it says now; None is nothing. Secrets
    are hidden."""

    key: str
    before: str | None = None
    after: str | None = None


class ChangeView(View):
    """One change of a setting or a pool.

    Args:
        kind: group, user, project, quota, domain, token, join-token or pool.
        name: of the setting; of a token its id.
        what: a word for what became of it: added, changed, removed; of a pool also paused and
            others.
        by: who changed it, as domain/user; None is the controller itself.
        token: the id of the token with which it was changed, if it was one.
    """

    seq: int
    at: float
    kind: str
    name: str
    what: str
    by: str | None = None
    token: str | None = None
    changes: tuple[DifferenceView, ...] = ()


class ChangePage(View):
    """Changes, the newest first. ``next`` continues the listing as ``cursor``; None at its end."""

    items: tuple[ChangeView, ...]
    next: str | None = None
