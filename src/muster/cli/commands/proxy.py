"""``muster proxy``."""

from pathlib import Path
from typing import Annotated

import click
from rich.text import Text

from muster.cli.cluster import Home
from muster.cli.parameters import Option
from muster.cli.screen import stderr


def proxy(
    ctx: click.Context,
    home: Home = None,
    port: Annotated[
        int, Option("--port", min=0, max=65535, help="Port to listen on; 0 means any.")
    ] = 8282,
    host: Annotated[
        str, Option("--host", help="Address to listen on; another than loopback needs TLS.")
    ] = "127.0.0.1",
    tls_cert: Annotated[
        Path | None, Option("--tls-cert", metavar="FILE", help="File of the certificate, in PEM.")
    ] = None,
    tls_key: Annotated[
        Path | None,
        Option("--tls-key", metavar="FILE", help="File of the certificate's key, in PEM."),
    ] = None,
) -> None:
    """Send requests to the replicas of deployments.

    It goes on until Ctrl-C, also while the controller is away."""
    import os
    import sys
    import tempfile

    from muster.app.home import Home as Place
    from muster.app.home import default_home
    from muster.app.proxy_config import dump_proxy, proxy_beside

    if (tls_cert is None) is not (tls_key is None):
        raise click.BadParameter("give both --tls-cert and --tls-key, or neither")
    place = Place(home or ctx.obj.home or default_home())
    place.require_own()
    config = proxy_beside(place, host, port, tls_cert, tls_key)
    stderr().print(Text(f"the proxy serves deployments at {host}:{port}; Ctrl-C ends it"))
    with tempfile.TemporaryFile() as settings:  # the proxy reads them from its stdin
        settings.write(dump_proxy(config).encode())
        settings.seek(0)
        os.dup2(settings.fileno(), sys.stdin.fileno())
    # This process becomes the proxy, so that whoever ends it ends the proxy.
    os.execv(sys.executable, [sys.executable, "-P", "-m", "muster.app.proxy_process"])
