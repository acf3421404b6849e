"""Users and tokens, as the control plane composes them."""

from muster.control.engine.module import Module
from muster.control.engine.work import Work
from muster.control.identity.tokens import keep_tokens


class IdentityModule(Module):
    def sweep(self, work: Work, since: float) -> None:
        keep_tokens(work, since=since)
