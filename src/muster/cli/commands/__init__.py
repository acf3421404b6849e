"""The commands. To add one, name it, its module and its summary in ``SECTIONS``.

A command is a function in its module, of its own name. Only the module of the command that was
asked for is imported; imports that take long (HTTP, specs, the processes of ``muster.app``) stand
inside functions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import click


class Listed(NamedTuple):
    """A command of ``muster --help``.

    Args:
        module: in this folder.
        summary: the first paragraph of the command's help. It stands here too, so that the list of
            commands, and their completion, need not import any of them.
    """

    module: str
    summary: str

    def summary_within(self, characters: int) -> str:
        """The summary as click shortens it."""
        import click

        return click.Command(None, help=self.summary).get_short_help_str(characters)


SECTIONS: dict[str, dict[str, Listed]] = {
    "Work": {
        "run": Listed("run", "Run a command, show its output, end with its exit code."),
        "submit": Listed(
            "submit", "Hand in a job or a session from a file; prints its name and id."
        ),
        "plan": Listed("plan", "Say whether a job or a session would start now, and where."),
        "ps": Listed("ps", "List jobs and sessions, newest first."),
        "show": Listed("show", "Show a record, such as a job, one task of it, or an agent."),
        "logs": Listed("logs", "Show the output of a job, a session, or a deployment."),
        "why": Listed("why", "Explain why work does not start or has ended."),
        "history": Listed("history", "Tell what happened to a record, such as a job or an agent."),
        "reprioritise": Listed("reprioritise", "Give a job that waits or runs another priority."),
        "cancel": Listed("cancel", "Cancel jobs; their tasks are told to stop, then stopped."),
        "retry": Listed(
            "retry", "Run again, as a new job, what did not succeed of one that ended."
        ),
        "recoveries": Listed("recoveries", "List how jobs recover from faults of their machines."),
        "notify": Listed("notify", "List notices of ended work, and try their channels."),
    },
    "Services": {
        "deploy": Listed(
            "deploy", "Make a deployment, or change it, and wait until it is healthy."
        ),
        "open": Listed("open", "Print the URL of a deployment, and show it in the browser."),
        "deployments": Listed("deployments", "List deployments, newest first."),
        "routes": Listed("deployments", "List routes, the replicas of deployments, newest first."),
        "scale": Listed(
            "deployments", "Give a deployment another number of replicas, and wait for them."
        ),
        "rollout": Listed("rollout", "Watch, pause and undo the updates of deployments."),
        "top": Listed("top", "Show the requests of deployments: rate, failures, latency."),
        "proxy": Listed("proxy", "Send requests to the replicas of deployments."),
    },
    "Cluster": {
        "up": Listed("cluster", "Start a cluster on this machine."),
        "down": Listed("cluster", "Stop the cluster on this machine, and what runs on it."),
        "agents": Listed("agents", "List the agents: what they have, and how much of it is free."),
        "incidents": Listed("incidents", "List the incidents of machines that are ill, or were."),
        "groups": Listed("groups", "List the scaling groups, show, write and remove one."),
        "pools": Listed("pools", "List, make, change and delete pools of machines."),
        "slices": Listed("slices", "List the slices of pools; hold, drain and delete them."),
        "autoscaler": Listed("autoscaler", "Show pools, slices, and where waiting work is to run."),
        "agent": Listed("agent", "Lend this machine to a controller elsewhere, or end that."),
        "controller": Listed("cluster", "Be the controller of agents elsewhere."),
        "simulate": Listed("simulate", "Replay a trace against policies, in virtual time."),
        "db": Listed("db", "Check, back up, restore, migrate or move a cluster's state."),
        "doctor": Listed(
            "doctor", "Check what Muster needs of this machine, and say how to mend it."
        ),
        "service": Listed("service", "Have systemd run a controller, an agent or a proxy."),
        "version": Listed("version", "Show the version, and the controller's if one answers."),
        "login": Listed("contexts", "Keep a cluster's URL and your token for later commands."),
        "context": Listed(
            "contexts", "List the clusters that you are logged in to, or switch to one."
        ),
        "logout": Listed("contexts", "Forget a cluster, and the token there: it stays valid."),
        "completion": Listed("completion", "Print what makes a shell complete `muster` commands."),
    },
    "People": {
        "users": Listed("accounts", "Manage users, who hand in work."),
        "projects": Listed("accounts", "Manage projects, the units of accounting."),
        "domains": Listed("accounts", "Manage domains, to which users and projects belong."),
        "tokens": Listed("tokens", "List, create and revoke API tokens."),
        "whoami": Listed("accounts", "Say whom the controller takes you for, and how long."),
    },
    "Policy": {
        "quotas": Listed("quotas", "List the quotas, and what is used of them."),
        "quota": Listed("quotas", "Limit a domain, a project or a user."),
        "changes": Listed("changes", "List changes of settings, and who made them."),
        "cordon": Listed("bars", "Have agents take nothing new; what they run goes on."),
        "drain": Listed("bars", "Empty agents: nothing new, and what they run has to leave."),
        "uncordon": Listed("bars", "Have agents take work again, after cordon or drain."),
    },
}
"""The commands under the headings of ``muster --help``."""

COMMANDS = {name: listed for commands in SECTIONS.values() for name, listed in commands.items()}


def load(name: str) -> "click.Command | None":
    """The command of this name, if there is one."""
    from muster.cli.parameters import command_of

    if (listed := COMMANDS.get(name)) is None:
        return None
    return command_of(getattr(import_module(f"{__name__}.{listed.module}"), name))
