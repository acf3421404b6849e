"""Users and tokens, as the control plane composes them."""

from muster.control.engine.module import Module
from muster.control.engine.work import Work
from muster.control.identity.tokens import keep_tokens, remember_uses
from muster.store.live import Live


class IdentityModule(Module):
    def begin(self, live: Live, before: Live | None) -> None:
        if before is not None:
            remember_uses(live.accounts, before.accounts)

    def sweep(self, work: Work, since: float) -> None:
        keep_tokens(work, since=since)
