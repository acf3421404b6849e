"""The audits of `muster db check` as invariants of a run's rows."""

from muster.control.modules import cluster_audits
from muster.store.audit.finding import carry_out, stored_in
from proving.swarm.judge import Invariant, Judge

AUDITED_EVERY = 40
"""Steps from one check to the next: each reads all rows, those of ended work too."""


class StoredRowsAgree(Invariant):
    says = "stored rows are as those from which they follow"

    def __init__(self, judge: Judge) -> None:
        super().__init__(judge)
        self._steps = 0

    def between_steps(self) -> None:
        self._steps += 1
        if self._steps % AUDITED_EVERY == 0 and self.world.controller is not None:
            self._check()

    def at_rest(self) -> None:
        self._check()

    def _check(self) -> None:
        store = self.world.store
        with store.engine.connect().execution_options(readonly=True) as connection:
            stored = stored_in(connection, store.entities)
            for audit in cluster_audits():
                audited = carry_out(audit, stored, 1)
                told = [f"{each.subject} {each.sentence}" for each in audited.first]
                self.expect(not told and audited.trouble is None, f"not {audit.title}: {told}")
