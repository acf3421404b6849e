"""``muster up``, ``down``, ``controller`` and ``agent``."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import click

from muster.cli.parameters import Option
from muster.cli.target import Home
from muster.cli.words import count, duration


class AccountSource(StrEnum):
    """Where the accounts come from of users that were not mapped to one."""

    RANGE = "range"
    SYSTEM = "system"


Cpus = Annotated[
    str | None, Option("--cpus", metavar="N", help="Processors of an agent; else as found.")
]
Memory = Annotated[
    str | None,
    Option("--memory", metavar="SIZE", help="Memory of an agent, as 16GiB; else as found."),
]
Gpus = Annotated[
    str | None,
    Option("--gpus", metavar="NxMODEL", help="GPUs of an agent, as 4xH100, or 4; else as found."),
]

Attributes = Annotated[
    list[str] | None,
    Option(
        "--attribute",
        metavar="NAME=VALUE",
        help="Of an agent, for constraints, as zone=a; may be repeated.",
    ),
]


def up(
    ctx: click.Context,
    agents: Annotated[
        int | None,
        Option("--agents", "-n", min=0, help="Local agents. [default: 1, or as before]"),
    ] = None,
    cpus: Cpus = None,
    memory: Memory = None,
    gpus: Gpus = None,
    attribute: Attributes = None,
    home: Home = None,
    port: Annotated[
        int,
        Option(
            "--port",
            min=0,
            max=65535,
            show_default=False,
            help="HTTP port, kept for the next time. [default: 7600 or next]",
        ),
    ] = 0,
    foreground: Annotated[
        bool, Option("--foreground", help="Stay here; Ctrl-C stops the cluster.")
    ] = False,
) -> None:
    """Start a cluster on this machine."""
    from muster.app import local
    from muster.cli.request import ATTRIBUTE, pairs

    attributes = None
    if attribute:
        none = attribute == ["none"]
        attributes = {} if none else pairs(attribute, "--attribute", ATTRIBUTE)
    options = local.UpOptions(
        home=home or ctx.obj.home,
        agents=agents,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        attributes=attributes,
        port=port,
        foreground=foreground,
    )

    def ready(report: local.UpReport) -> None:
        for warning in report.warnings:
            click.echo(f"warning: {warning}", err=True)
        names = list(report.agents)
        shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        click.echo(
            f"Muster runs at {report.url} with {count(len(names), 'agent')}"
            f"{f' ({shown})' if names else ''}; it took {duration(report.took_s)}."
        )
        if not names:
            click.echo(
                f"It has no agent of its own: add one with `muster agent --controller "
                f"{report.agent_address} --token-file {report.join_token_file}`."
            )
        stop = "Ctrl-C" if foreground else "`muster down`"
        click.echo(f"Try `muster run -- hostname`, look with `muster ps`, stop it with {stop}.")

    local.up(options, ready)
    if foreground:
        click.echo("the cluster has stopped")


def down(
    ctx: click.Context,
    keep: Annotated[
        bool, Option("--keep", help="Leave what runs running; the next `up` finds it again.")
    ] = False,
    home: Home = None,
    timeout: Annotated[
        float, Option("--timeout", min=1, metavar="SECONDS", help="Longest wait.")
    ] = 30.0,
) -> None:
    """Stop the cluster on this machine, and what runs on it."""
    from muster.app import local

    report = local.down(home or ctx.obj.home, keep_kernels=keep, timeout_s=timeout)
    stopped = report.stopped_kernels
    if not report.was_running and not stopped:
        click.echo("no cluster was running")
        return
    ended = f", and {count(stopped, 'kernel')} with it" if stopped else ""
    click.echo(f"the cluster has stopped{'; what ran goes on' if keep else ended}")


def controller(
    ctx: click.Context,
    home: Home = None,
    host: Annotated[str, Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int,
        Option("--port", min=0, max=65535, show_default=False, help="HTTP port. [default: 7600]"),
    ] = 0,
    agent_port: Annotated[
        int,
        Option(
            "--agent-port",
            min=0,
            max=65535,
            show_default=False,
            help="Port for agents. [default: next]",
        ),
    ] = 0,
    tls_cert: Annotated[
        Path | None, Option("--tls-cert", metavar="FILE", help="Certificate, PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None, Option("--tls-key", metavar="FILE", help="Its key, PEM.")
    ] = None,
    tls_ca: Annotated[
        Path | None, Option("--tls-ca", metavar="FILE", help="What vouches for it, PEM.")
    ] = None,
    tls_self_signed: Annotated[
        bool,
        Option("--tls-self-signed", help="Make an authority of its own, HOME/ca.pem, and use it."),
    ] = False,
    tls_name: Annotated[
        list[str] | None,
        Option(
            "--tls-name",
            metavar="NAME",
            help="With that: what others call this machine; may be repeated.",
        ),
    ] = None,
) -> None:
    """Be the controller of agents elsewhere."""
    from muster.app import local

    local.run_controller(
        home=home or ctx.obj.home,
        host=host,
        port=port,
        agent_port=agent_port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_ca=tls_ca,
        own_authority_for=(tls_name or []) if tls_self_signed or tls_name else None,
    )


def _host_and_port(text: str) -> str:
    """
    Raises:
        click.BadParameter: it is not HOST:PORT.
    """
    host, _, port = text.rpartition(":")
    if host and "/" not in host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
        return text
    raise click.BadParameter(
        f"{text!r}: expected HOST:PORT with the controller's port for agents, such as 10.0.0.5:7601"
    )


def agent(
    address: Annotated[
        str,
        Option(
            "--controller",
            metavar="HOST:PORT",
            help="Its port for agents.",
            callback=_host_and_port,
        ),
    ],
    token: Annotated[
        str | None,
        Option("--token", envvar="MUSTER_JOIN_TOKEN", help="Join token; others may see it."),
    ] = None,
    token_file: Annotated[
        Path | None, Option("--token-file", metavar="FILE", help="File of the join token.")
    ] = None,
    name: Annotated[str | None, Option("--name", help="Name. [default: this machine's]")] = None,
    group: Annotated[str, Option("--group", "-g", help="Scaling group to join.")] = "default",
    directory: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="Where it keeps everything.")
    ] = None,
    cpus: Cpus = None,
    memory: Memory = None,
    gpus: Gpus = None,
    resource: Annotated[
        list[str] | None,
        Option("--resource", "-r", metavar="NAME=AMOUNT", help="Extra; may be repeated."),
    ] = None,
    attribute: Attributes = None,
    ca: Annotated[
        Path | None,
        Option("--ca", metavar="FILE", help="Certificate authority of the controller, PEM."),
    ] = None,
    map_user: Annotated[
        list[str] | None,
        Option(
            "--map-user", metavar="USER=ACCOUNT", help="Whom a user's kernels run as; as root only."
        ),
    ] = None,
    accounts: Annotated[
        AccountSource,
        Option(
            "--accounts",
            show_default=False,
            help="Users get uids of a range, or the machine's accounts. [default: range]",
        ),
    ] = AccountSource.RANGE,
    uid_range: Annotated[
        str | None,
        Option("--uid-range", metavar="FIRST-LAST", help="Of users. [default: 200000-265535]"),
    ] = None,
    users_dir: Annotated[
        Path | None,
        Option("--users-dir", metavar="DIR", help="Homes. [default: /var/lib/muster/users]"),
    ] = None,
    pids_max: Annotated[
        int | None,
        Option("--pids-max", metavar="N", help="Processes of a kernel. [default: 4096]"),
    ] = None,
    scratch_max: Annotated[
        str | None,
        Option(
            "--scratch-max",
            metavar="SIZE",
            help="What a kernel without `disk` may keep. [default: half of the disk]",
        ),
    ] = None,
) -> None:
    """Lend this machine to a controller elsewhere."""
    from muster.app import local
    from muster.app.account_options import AccountOptions
    from muster.cli.request import ATTRIBUTE, pairs

    if token is not None and token_file is not None:
        raise click.BadParameter("give one of --token and --token-file")
    local.run_agent(
        controller=address,
        token=token,
        token_file=token_file,
        name=name,
        group=group,
        directory=directory,
        cpus=cpus,
        memory=memory,
        gpus=gpus,
        resources=pairs(resource or [], "--resource"),
        attributes=pairs(attribute or [], "--attribute", ATTRIBUTE),
        ca=ca,
        accounts=AccountOptions(
            mapped=pairs(map_user or [], "--map-user"),
            source=accounts,
            uid_range=uid_range,
            users_directory=users_dir,
            pids_max=pids_max,
            scratch_max=scratch_max,
        ),
    )
