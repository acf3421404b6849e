"""``muster up``, ``down`` and ``controller``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from muster.cli.agent_options import AgentAccountOptions, MachineOptions
from muster.cli.cluster import Home
from muster.cli.log_options import LoggingOptions
from muster.cli.parameters import Option
from muster.cli.slowness import told_if_slow
from muster.cli.streams import plain
from muster.cli.words import count, duration

if TYPE_CHECKING:
    from muster.app.local import UpReport
    from muster.app.service import SystemUnit

Database = Annotated[
    str | None,
    Option(
        "--database",
        metavar="URL",
        show_default=False,
        help="PostgreSQL URL, or a file; kept by `up`. [env: MUSTER_DATABASE; or HOME/muster.db]",
    ),
]


def up(
    ctx: click.Context,
    machine: MachineOptions,
    accounts: AgentAccountOptions,
    log: LoggingOptions,
    agents: Annotated[
        int | None,
        Option(
            "--agents", "-n", min=0, help="Start so many local agents. [default: 1, or as before]"
        ),
    ] = None,
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
    database: Database = None,
    proxy: Annotated[
        bool | None,
        Option(
            "--proxy/--no-proxy",
            show_default=False,
            help="Start the proxy in front of deployments. [default: yes, or as before]",
        ),
    ] = None,
    proxy_port: Annotated[
        int,
        Option(
            "--proxy-port",
            min=0,
            max=65535,
            show_default=False,
            help="Port of the proxy, kept for the next time. [default: 8282 or next]",
        ),
    ] = 0,
) -> None:
    """Start a cluster on this machine."""
    from muster.app import local

    options = local.UpOptions(
        home=home or ctx.obj.home,
        agents=agents,
        cpus=machine.cpus,
        memory=machine.memory,
        gpus=machine.gpus,
        attributes=machine.attributes(),
        accounts=accounts.options(),
        port=port,
        foreground=foreground,
        database=database,
        proxy=proxy,
        proxy_port=proxy_port,
        log_level=log.log_level,
        log_form=log.log_format,
    )

    with told_if_slow("starting a controller, its agents and its proxy …") as is_ready:

        def ready(report: "UpReport") -> None:
            is_ready()
            _say_ready(report, foreground)

        local.up(options, ready)
    if foreground:
        click.echo("the cluster has stopped")


def _say_ready(report: "UpReport", foreground: bool) -> None:
    for warning in report.warnings:
        click.echo(f"warning: {warning}", err=True)
    names = list(report.agents)
    shown = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    click.echo(
        f"Muster runs at {report.url} with {count(len(names), 'agent')}"
        f"{f' ({shown})' if names else ''}; it took {duration(report.took_s)}."
    )
    parts = report.parts
    if parts.missing:
        late = ", ".join(parts.missing[:5]) + (", …" if len(parts.missing) > 5 else "")
        log = report.home / "agents" / parts.missing[0] / "agent.log"
        click.echo(f"warning: not joined yet: {late}; see {log}", err=True)
    if parts.proxy is not None:
        click.echo(f"Its proxy serves deployments at {parts.proxy}.")
    if parts.trouble is not None:
        click.echo(f"warning: deployments have no proxy: {plain(parts.trouble)}", err=True)
    if not names:
        click.echo(
            f"It has no agent of its own: add one with `muster agent --controller "
            f"{report.agent_address} --token-file {report.join_token_file}`, or a pool that makes "
            f"them with `muster pools apply FILE`."
        )
    stop = "Ctrl-C" if foreground else "`muster down`"
    click.echo(f"Try `muster run -- hostname`, look with `muster ps`, stop it with {stop}.")


def down(
    ctx: click.Context,
    keep: Annotated[
        bool, Option("--keep", help="Leave what runs running; the next `up` finds it again.")
    ] = False,
    home: Home = None,
    timeout: Annotated[
        float, Option("--timeout", min=1, metavar="SECONDS", help="Wait so many seconds at most.")
    ] = 30.0,
) -> None:
    """Stop the cluster on this machine, and what runs on it.

    The work is not lost: jobs that were stopped start again at the next `muster up`.
    """
    from muster.app import local

    what = "the cluster" if keep else "the cluster and what runs on it"
    with told_if_slow(f"stopping {what}, for {duration(timeout)} at most …"):
        report = local.down(home or ctx.obj.home, keep_kernels=keep, timeout_s=timeout)
    stopped = report.stopped_kernels
    if not report.was_running and not stopped:
        click.echo("no cluster was running")
        return
    ended = f", and {count(stopped, 'kernel')} with it" if stopped else ""
    click.echo(f"the cluster has stopped{'; what ran goes on' if keep else ended}")
    if report.unit is not None:
        _say_unit(report.unit)


def _say_unit(unit: "SystemUnit") -> None:
    """Say when systemd starts the unit again, whose process has ended in order."""
    from muster.app.service import starts_again

    systemctl = "systemctl --user" if unit.of_user else "systemctl"
    if starts_again(unit):
        click.echo(
            f"warning: systemd starts {unit.name} again at once, as a unit of an earlier version: "
            f"stop it with `{systemctl} stop {unit.name}`, and write it anew with `muster service "
            f"install {unit.role}`",
            err=True,
        )
    else:
        click.echo(
            f"systemd starts {unit.name} at the next boot; `{systemctl} start {unit.name}` does now"
        )


def controller(
    ctx: click.Context,
    log: LoggingOptions,
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
        Path | None, Option("--tls-cert", metavar="FILE", help="File of the certificate, in PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None,
        Option("--tls-key", metavar="FILE", help="File of the certificate's key, in PEM."),
    ] = None,
    tls_ca: Annotated[
        Path | None,
        Option(
            "--tls-ca", metavar="FILE", help="File of the authority that vouches for it, in PEM."
        ),
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
            help="Name by which others call this machine, with --tls-self-signed; may be repeated.",
        ),
    ] = None,
    database: Database = None,
    uid_range: Annotated[
        str | None,
        Option(
            "--uid-range",
            metavar="FIRST-LAST",
            show_default=False,
            help="Give users uids of this range. [default: 65536 of a place of the cluster's own]",
        ),
    ] = None,
) -> None:
    """Be the controller of agents elsewhere."""
    from muster.app.foreground import run_controller

    run_controller(
        home=home or ctx.obj.home,
        host=host,
        port=port,
        agent_port=agent_port,
        tls_cert=tls_cert,
        tls_key=tls_key,
        tls_ca=tls_ca,
        own_authority_for=(tls_name or []) if tls_self_signed or tls_name else None,
        database=database,
        uid_range=uid_range,
        log=log.options(),
    )
