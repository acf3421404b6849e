"""The uids that users have on machines: one for a user in the whole cluster."""

from collections.abc import Mapping

from muster.control.engine.work import Work
from muster.core.owner import AS_OWNER, OWNER_NAME, RUNS_AS, Owner
from muster.core.uids import ClusterUid, uids_of
from muster.store import schema
from muster.store.batch import inserting
from muster.store.live import Live
from muster.store.records import Agent

_GIVE = inserting(schema.uids, ("uid", "domain", "user", "given_at"))


class UserUids:
    """Allots uids, each once. A user keeps the one that it has: also when the range is changed, and
    when it is removed and added again. No other user ever gets it, for it may own files.

    Attributes:
        chosen: the range that an operator chose; None is the one that follows from the cluster's
            id.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self.chosen: range | None = None
        self._next = 0  # no lower uid of the range is free

    @property
    def range(self) -> range:
        """The uids from which users are given theirs."""
        return self.chosen or uids_of(self._live.cluster)

    @property
    def left(self) -> int:
        """How many uids of the range are free."""
        return len(self.range) - self._live.accounts.uids.among(self.range)

    def for_agent(self, work: Work, owner: Owner, agent: Agent | None) -> ClusterUid | None:
        """The uid for kernels of this owner on an agent, allotted now if the user has none. None
        where kernels do not run as their owners."""
        if agent is None or agent.attributes.get(RUNS_AS) != AS_OWNER:
            return None
        uid = self._live.accounts.uids.of(owner.domain, owner.user)
        if uid is None and (uid := self._free()) is not None:
            self._give(work, owner.domain, owner.user, uid)
        return ClusterUid(self._live.cluster, uid)

    def adopt(self, work: Work, found: Mapping[str, int]) -> None:
        """Let users have uids that a machine gave them by itself, before the cluster allotted any.
        A user that has a uid keeps that, and a uid that was given is nobody else's.

        Args:
            found: uids by "domain/user".
        """
        uids = self._live.accounts.uids
        for name, uid in sorted(found.items()):
            domain, _, user = name.partition("/")
            if not (OWNER_NAME.fullmatch(domain) and OWNER_NAME.fullmatch(user)):
                continue
            if uids.of(domain, user) is None and uid not in uids:
                self._give(work, domain, user, uid)

    def _free(self) -> int | None:
        given = self._live.accounts.uids
        self._next = max(self._next, self.range.start)
        while self._next in self.range:
            if self._next not in given:
                return self._next
            self._next += 1
        return None

    def _give(self, work: Work, domain: str, user: str, uid: int) -> None:
        self._live.accounts.uids.give(domain, user, uid)
        work.unit.also_rows(_GIVE, (uid, domain, user, work.now))
