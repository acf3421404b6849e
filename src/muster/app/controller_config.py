"""The settings with which a controller starts, and their form as text."""

import json
from dataclasses import dataclass
from pathlib import Path

from muster.agent.config import AgentConfig
from muster.app.agent_process import dump_config, load_config
from muster.app.home import Home
from muster.app.proxy_config import ProxyConfig, dump_proxy, load_proxy
from muster.core.ids import AgentId
from muster.wire.transport import ServerTls


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """``port`` and ``agent_port`` 0 mean any. ``agents`` are started on this machine; their
    ``controller`` and ``token`` are filled in. ``former_agents`` were started earlier and are to be
    forgotten. ``proxy`` is started on this machine, too. ``authority`` vouches for the certificate
    of ``tls``, where the system's authorities do not.

    ``database`` is the URL of the database, None for the home's own. A controller that ``waits``
    does so until the database's server can be reached, and while another program has its ports;
    another one ends.

    ``uids`` is the range from which users are given uids; None is the one that follows from the
    cluster's id.

    The first free one of ``ports_tried`` ports from ``port`` on is taken, and of
    ``agent_ports_tried`` ports from ``agent_port`` on.
    """

    home: Home
    host: str = "127.0.0.1"
    port: int = 0
    agent_port: int = 0
    agents: tuple[AgentConfig, ...] = ()
    former_agents: tuple[AgentId, ...] = ()
    proxy: ProxyConfig | None = None
    tls: ServerTls | None = None
    authority: Path | None = None
    ports_tried: int = 1
    agent_ports_tried: int = 1
    database: str | None = None
    waits: bool = False
    uids: range | None = None


@dataclass(frozen=True, slots=True)
class _Text:
    home: str
    host: str
    port: int
    agent_port: int
    agents: list[str]
    former_agents: list[str]
    proxy: str | None
    tls_certificate: str | None
    tls_key: str | None
    authority: str | None
    ports_tried: int
    agent_ports_tried: int
    database: str | None
    waits: bool
    uids: list[int] | None = None


def dump_controller(config: ControllerConfig) -> str:
    """The settings as text, for ``load_controller``."""
    return json.dumps(
        {
            "home": str(config.home.path),
            "host": config.host,
            "port": config.port,
            "agent_port": config.agent_port,
            "agents": [dump_config(agent) for agent in config.agents],
            "former_agents": config.former_agents,
            "proxy": dump_proxy(config.proxy) if config.proxy else None,
            "tls_certificate": str(config.tls.certificate) if config.tls else None,
            "tls_key": str(config.tls.key) if config.tls else None,
            "authority": str(config.authority) if config.authority else None,
            "ports_tried": config.ports_tried,
            "agent_ports_tried": config.agent_ports_tried,
            "database": config.database,
            "waits": config.waits,
            "uids": [config.uids.start, config.uids.stop] if config.uids else None,
        }
    )


def load_controller(text: str) -> ControllerConfig:
    kept = _Text(**json.loads(text))
    agents: list[AgentConfig] = [load_config(agent) for agent in kept.agents]
    tls = None
    if kept.tls_certificate and kept.tls_key:
        tls = ServerTls(Path(kept.tls_certificate), Path(kept.tls_key))
    return ControllerConfig(
        Home(Path(kept.home)),
        kept.host,
        kept.port,
        kept.agent_port,
        tuple(agents),
        tuple(map(AgentId, kept.former_agents)),
        load_proxy(kept.proxy) if kept.proxy else None,
        tls,
        Path(kept.authority) if kept.authority else None,
        kept.ports_tried,
        kept.agent_ports_tried,
        kept.database,
        kept.waits,
        range(*kept.uids) if kept.uids else None,
    )
