"""``muster agent``."""

from pathlib import Path
from typing import Annotated

import click

from muster.cli.agent_options import AgentAccountOptions, AgentHealthOptions, MachineOptions, Part
from muster.cli.log_options import LoggingOptions
from muster.cli.parameters import Option
from muster.cli.request import pairs
from muster.cli.streams import say
from muster.core.host_port import parted


def _host_and_port(text: str | None) -> str | None:
    """
    Raises:
        click.BadParameter: the text is not HOST:PORT.
    """
    if text is None:
        return None
    host, port = parted(text)
    if host and "/" not in host and port.isascii() and port.isdecimal() and 0 < int(port) < 65536:
        return text
    raise click.BadParameter(
        f"{text!r}: expected HOST:PORT with the controller's port for agents, such as 10.0.0.5:7601"
    )


def agent(
    *,
    address: Annotated[
        str | None,
        Option(
            "--controller",
            metavar="HOST:PORT",
            help="Address of the controller's port for agents.",
            callback=_host_and_port,
        ),
    ] = None,
    machine: MachineOptions,
    accounts: AgentAccountOptions,
    part: Part,
    health: AgentHealthOptions,
    log: LoggingOptions,
    token: Annotated[
        str | None,
        Option("--token", envvar="MUSTER_JOIN_TOKEN", help="Join token; others may see it."),
    ] = None,
    token_file: Annotated[
        Path | None, Option("--token-file", metavar="FILE", help="File of the join token.")
    ] = None,
    name: Annotated[
        str | None, Option("--name", help="Name of the agent. [default: this machine's]")
    ] = None,
    group: Annotated[
        str | None,
        Option(
            "--group", "-g", show_default=False, help="Scaling group to join. [default: default]"
        ),
    ] = None,
    directory: Annotated[
        Path | None, Option("--dir", metavar="DIR", help="Directory of the agent's files.")
    ] = None,
    resource: Annotated[
        list[str] | None,
        Option(
            "--resource",
            "-r",
            metavar="NAME=AMOUNT",
            help="Add an extra resource; may be repeated.",
        ),
    ] = None,
    ca: Annotated[
        Path | None,
        Option("--ca", metavar="FILE", help="Certificate authority of the controller, PEM."),
    ] = None,
    end: Annotated[
        bool, Option("--end", help="End the agent of --dir or --name, and all its kernels.")
    ] = False,
    wipe: Annotated[bool, Option("--wipe", help="Remove its files too, with --end.")] = False,
    grace_s: Annotated[
        float,
        Option(
            "--grace",
            min=0,
            max=600,
            metavar="SECONDS",
            help="Let its kernels end in so long, with --end.",
        ),
    ] = 5.0,
) -> None:
    """Lend this machine to a controller elsewhere, or end that."""
    from muster.app.foreground import agent_directory, run_agent

    if end:
        from muster.app.ended_agent import end_agent

        if address is not None:
            raise click.BadParameter("--end needs no --controller: leave it out")
        place = agent_directory(directory, name)
        was_agents = end_agent(
            place,
            wipe=wipe,
            users_directory=accounts.users_dir,
            accounts_file=part.accounts_file,
            grace_s=grace_s,
        )
        if was_agents:
            say(f"the agent of {place} has ended" + (", and its files are removed" if wipe else ""))
        else:
            say(f"there is no agent in {place}")
        return
    if wipe:
        raise click.BadParameter("--wipe goes with --end")
    if address is None:
        raise click.UsageError("Missing option '--controller'.")
    if token is not None and token_file is not None:
        raise click.BadParameter("give one of --token and --token-file")
    run_agent(
        controller=address,
        token=token,
        token_file=token_file,
        name=name,
        group=group,
        directory=directory,
        cpus=machine.cpus,
        memory=machine.memory,
        gpus=machine.gpus,
        resources=pairs(resource or [], "--resource"),
        attributes=machine.attributes(),
        ca=ca,
        accounts=accounts.options(),
        part=part.options(),
        health=health.options(),
        log=log.options(),
    )
