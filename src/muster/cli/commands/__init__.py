"""The commands. To add one, name it, its module and its summary in ``SECTIONS``.

A command is a function in its module, of its own name. Only the module of the command that was
asked for is imported; imports that take long (HTTP, specs, the processes of ``muster.app``) stand
inside functions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import click


class ListedCommand(NamedTuple):
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


SECTIONS: dict[str, dict[str, ListedCommand]] = {
    "Work": {
        "run": ListedCommand("run", "Run a command, show its output, end with its exit code."),
        "submit": ListedCommand(
            "submit", "Hand in a job or a session from a file; prints its name and id."
        ),
        "sbatch": ListedCommand(
            "sbatch", "Hand in a batch script of Slurm as a job; prints its id."
        ),
        "plan": ListedCommand("plan", "Say whether a job or a session would start now, and where."),
        "ps": ListedCommand("ps", "List jobs and sessions, newest first."),
        "show": ListedCommand("show", "Show a record, such as a job, one task of it, or an agent."),
        "logs": ListedCommand("logs", "Show the output of a job, a session, or a deployment."),
        "why": ListedCommand("why", "Explain why work does not start or has ended."),
        "history": ListedCommand(
            "history", "Tell what happened to a record, such as a job or an agent."
        ),
        "wait": ListedCommand(
            "wait", "Wait until jobs and sessions end, and deployments are healthy."
        ),
        "reprioritise": ListedCommand(
            "reprioritise", "Give a job that waits or runs another priority."
        ),
        "hold": ListedCommand(
            "holding", "Keep tasks of jobs that have no place yet from beginning."
        ),
        "release": ListedCommand("holding", "Let the tasks of held jobs begin."),
        "cancel": ListedCommand(
            "cancel", "Cancel jobs; their tasks are told to stop, then stopped."
        ),
        "retry": ListedCommand(
            "retry", "Run again, as a new job, what did not succeed of one that ended."
        ),
        "results": ListedCommand(
            "results",
            "Show the results of a job's tasks, with their parameters.",
        ),
        "recoveries": ListedCommand(
            "recoveries", "List how jobs recover from faults of their machines."
        ),
        "notify": ListedCommand("notify", "List notices of ended work, and try their channels."),
    },
    "Services": {
        "deploy": ListedCommand(
            "deploy", "Make a deployment, or change it, and wait until it is healthy."
        ),
        "open": ListedCommand("open", "Print the URL of a deployment, and show it in the browser."),
        "deployments": ListedCommand("deployments", "List deployments, newest first."),
        "routes": ListedCommand(
            "deployments", "List routes, the replicas of deployments, newest first."
        ),
        "scale": ListedCommand(
            "deployments", "Give a deployment another number of replicas, and wait for them."
        ),
        "rollout": ListedCommand("rollout", "Watch, pause and undo the updates of deployments."),
        "top": ListedCommand("top", "Show the requests of deployments: rate, failures, latency."),
        "proxy": ListedCommand("proxy", "Send requests to the replicas of deployments."),
    },
    "Cluster": {
        "up": ListedCommand("cluster", "Start a cluster on this machine."),
        "down": ListedCommand("cluster", "Stop the cluster on this machine, and what runs on it."),
        "agents": ListedCommand(
            "agents", "List the agents: what they have, and how much of it is free."
        ),
        "incidents": ListedCommand(
            "incidents", "List the incidents of machines that are ill, or were."
        ),
        "groups": ListedCommand("groups", "List the scaling groups, show, write and remove one."),
        "pools": ListedCommand("pools", "List, make, change and delete pools of machines."),
        "slices": ListedCommand("slices", "List the slices of pools; hold, drain and delete them."),
        "autoscaler": ListedCommand(
            "autoscaler", "Show pools, slices, and where waiting work is to run."
        ),
        "agent": ListedCommand(
            "agent", "Lend this machine to a controller elsewhere, or end that."
        ),
        "controller": ListedCommand("cluster", "Be the controller of agents elsewhere."),
        "simulate": ListedCommand("simulate", "Replay a trace against policies, in virtual time."),
        "db": ListedCommand("db", "Check, back up, restore, migrate or move a cluster's state."),
        "doctor": ListedCommand(
            "doctor", "Check what Muster needs of this machine, and say how to mend it."
        ),
        "service": ListedCommand("service", "Have systemd run a controller, an agent or a proxy."),
        "version": ListedCommand(
            "version", "Show the version, and the controller's if one answers."
        ),
        "login": ListedCommand(
            "contexts", "Keep a cluster's URL and your token for later commands."
        ),
        "context": ListedCommand(
            "contexts", "List the clusters that you are logged in to, or switch to one."
        ),
        "logout": ListedCommand(
            "contexts", "Forget a cluster, and the token there: it stays valid."
        ),
        "completion": ListedCommand(
            "completion", "Print what makes a shell complete `muster` commands."
        ),
    },
    "People": {
        "users": ListedCommand("accounts", "Manage users, who hand in work."),
        "projects": ListedCommand("accounts", "Manage projects, the units of accounting."),
        "domains": ListedCommand("accounts", "Manage domains, to which users and projects belong."),
        "tokens": ListedCommand("tokens", "List, create and revoke API tokens."),
        "whoami": ListedCommand("accounts", "Say whom the controller takes you for, and how long."),
    },
    "Policy": {
        "quotas": ListedCommand("quotas", "List the quotas, and what is used of them."),
        "quota": ListedCommand("quotas", "Limit a domain, a project or a user."),
        "changes": ListedCommand("changes", "List changes of settings, and who made them."),
        "cordon": ListedCommand("bars", "Have agents take nothing new; what they run goes on."),
        "drain": ListedCommand(
            "bars", "Empty agents: nothing new, and what they run has to leave."
        ),
        "uncordon": ListedCommand("bars", "Have agents take work again, after cordon or drain."),
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
