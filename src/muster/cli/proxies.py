"""The proxies by which deployments are reached, as the controller knows them and as they are seen
from this machine."""

import http.client
import ssl
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from muster.client.connection import is_loopback
from muster.client.encoding import quoted
from muster.core.errors import MusterError

if TYPE_CHECKING:
    from muster.client import Client

TIMEOUT_S = 3.0
"""How long a proxy may take to be connected to, and to answer."""
MOST = 8
"""Proxies that are tried."""


def answering_proxy(client: "Client") -> str:
    """The URL of a proxy that answers on this machine.

    Raises:
        MusterError: none does, or no proxy reports to the controller.
    """
    known = client.health().proxies
    if not known:
        raise MusterError(
            "no proxy reports to the controller: `muster up --proxy` starts one beside it, and "
            "`muster proxy` one beside `muster controller`"
        )
    problems = []
    # On the controller's machine loopback is as good as any; on another one it is another machine.
    for url in sorted(known, key=is_loopback)[:MOST]:
        if (problem := _problem(url, client.ca)) is None:
            return url
        if is_loopback(url) and not is_loopback(client.url):
            problem += ", and it is reached on the controller's machine alone"
        problems.append(f"{url}: {problem}")
    raise MusterError(f"no proxy answers here: {'; '.join(problems)}")


def url_at(proxy: str, name: str) -> str:
    """The URL of the deployment of this name at a proxy."""
    return f"{proxy}/{quoted(name)}/"


def known_url(client: "Client", name: str) -> str | None:
    """The URL of a deployment at the first proxy that reports, whether it answers here or not."""
    with suppress(MusterError):
        if known := client.health().proxies:
            return url_at(known[0], name)
    return None


def _problem(proxy: str, ca: Path | None) -> str | None:
    """Why a proxy does not answer; None if it does. It is asked for no deployment, so that the
    question reaches no replica."""
    parts = urlsplit(proxy)
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        from muster.client.reaching import tls_context

        link: http.client.HTTPConnection = http.client.HTTPSConnection(
            host, port, timeout=TIMEOUT_S, context=tls_context(ca)
        )
    else:
        link = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    with closing(link):
        try:
            link.request("GET", "/")
            status = link.getresponse().status
        except ssl.SSLCertVerificationError as error:
            return f"its certificate is not trusted here ({error.verify_message}), see --ca"
        except TimeoutError:
            return f"no answer within {TIMEOUT_S:g} s"
        except OSError as error:
            return error.strerror or str(error)
        except http.client.HTTPException as error:
            return f"what answers is no proxy ({type(error).__name__})"
    return "it knows no deployments yet" if status == 503 else None
