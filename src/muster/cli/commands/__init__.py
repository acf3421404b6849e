"""The commands. To add one, name it and its module in ``SECTIONS``.

A command is a function in its module, of its own name. Only the module of the command that was
asked for is imported; imports that take long (HTTP, specs, the processes of ``muster.app``) stand
inside functions.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

SECTIONS: dict[str, dict[str, str]] = {
    "Work": {
        "run": "run",
        "submit": "submit",
        "plan": "plan",
        "ps": "ps",
        "show": "show",
        "logs": "logs",
        "why": "why",
        "history": "history",
        "reprioritise": "reprioritise",
        "cancel": "cancel",
        "retry": "retry",
        "recoveries": "recoveries",
        "notify": "notify",
    },
    "Services": {
        "deploy": "deploy",
        "open": "open",
        "deployments": "deployments",
        "routes": "deployments",
        "scale": "deployments",
        "rollout": "rollout",
        "top": "top",
        "proxy": "proxy",
    },
    "Cluster": {
        "up": "cluster",
        "down": "cluster",
        "agents": "agents",
        "incidents": "incidents",
        "groups": "groups",
        "pools": "pools",
        "slices": "slices",
        "autoscaler": "autoscaler",
        "agent": "agent",
        "controller": "cluster",
        "simulate": "simulate",
        "db": "db",
        "doctor": "doctor",
        "service": "service",
        "version": "version",
        "login": "contexts",
        "context": "contexts",
        "logout": "contexts",
        "completion": "completion",
    },
    "People": {
        "users": "accounts",
        "projects": "accounts",
        "domains": "accounts",
        "tokens": "tokens",
        "whoami": "accounts",
    },
    "Policy": {
        "quotas": "quotas",
        "quota": "quotas",
        "changes": "changes",
        "cordon": "bars",
        "drain": "bars",
        "uncordon": "bars",
    },
}
"""The commands under the headings of ``muster --help``, each with its module in this folder."""

_MODULES = {name: module for commands in SECTIONS.values() for name, module in commands.items()}


def load(name: str) -> "click.Command | None":
    """The command of this name, if there is one."""
    from muster.cli.parameters import command_of

    if (module := _MODULES.get(name)) is None:
        return None
    return command_of(getattr(import_module(f"{__name__}.{module}"), name))
