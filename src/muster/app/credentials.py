"""New credentials for a controller's own agents whose old ones cannot be used any more."""

import logging
import secrets

from muster.agent.config import AgentConfig
from muster.agent.identity import AgentIdentity, UnusableDirectory, load_identity, save_identity
from muster.control.agent.joining import agent_named, reissue
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.store.live import Live
from muster.store.tokens import token_hash

log = logging.getLogger(__name__)


async def mend_credential(plane: ControlPlane, config: AgentConfig) -> None:
    """Give the agent of this directory, one of the controller's own, another credential if its own
    is missing, damaged or unknown to the controller. It stays the same agent, so its kernels go on.
    An agent that never joined joins by itself."""
    try:
        if _is_good(plane.live, config.name, load_identity(config.directory)):
            return
        why = "is not known"
    except UnusableDirectory as error:
        why = f"cannot be used ({error})"
    credential = secrets.token_urlsafe(32)
    try:
        agent = await plane.request(lambda work, _: reissue(work, config.name, credential))
        # An agent whose name is unknown joins.
        save_identity(config.directory, AgentIdentity(agent or AgentId(""), credential))
    except (MusterError, TimeoutError) as error:
        log.error(
            "the credential of agent %s %s, and is not given anew: %s", config.name, why, error
        )
    else:
        log.warning("agent %s: its credential %s; it was given another", config.name, why)


def _is_good(live: Live, name: str, kept: AgentIdentity | None) -> bool:
    """Whether the agent needs no other credential: either its own is good, or it has none yet and
    no agent has its name."""
    owner = None if kept is None else live.credentials.get(token_hash(kept.credential))
    if kept is not None and kept.agent:
        return owner == kept.agent
    named = agent_named(live, name)
    return named is None or named.id == owner
