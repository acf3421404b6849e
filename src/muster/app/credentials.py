"""New credentials for a controller's own agents whose old ones cannot be used any more."""

import logging
import secrets

from muster.agent.config import AgentConfig
from muster.agent.identity import Identity, UnusableDirectory, load_identity, save_identity
from muster.control.agent.joining import reissue
from muster.control.plane import ControlPlane
from muster.core.errors import MusterError
from muster.core.ids import AgentId
from muster.store.tokens import token_hash

log = logging.getLogger(__name__)


async def mend_credential(plane: ControlPlane, config: AgentConfig) -> None:
    """Make sure that the controller's own agent of this directory is let in: an agent whose
    credential is damaged, or unknown to the controller, gets another. It stays the same agent, so
    its kernels run on. An agent that never joined joins by itself."""
    try:
        if _is_good(plane, load_identity(config.directory)):
            return
        why = "is not known"
    except UnusableDirectory as error:
        why = f"cannot be used ({error})"
    credential = secrets.token_urlsafe(32)
    try:
        agent = await plane.request(lambda work, _: reissue(work, config.name, credential))
        # An agent whose name is unknown joins.
        save_identity(config.directory, Identity(agent or AgentId(""), credential))
    except (MusterError, TimeoutError) as error:
        log.error(
            "the credential of agent %s %s, and is not given anew: %s", config.name, why, error
        )
    else:
        log.warning("agent %s: its credential %s; it was given another", config.name, why)


def _is_good(plane: ControlPlane, kept: Identity | None) -> bool:
    """Whether the agent needs no new credential: its own is good, or it has none yet."""
    if kept is None or not kept.agent:
        return True
    return plane.live.credentials.get(token_hash(kept.credential)) == kept.agent
