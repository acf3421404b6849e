"""Checks by `muster doctor` of certificates: those in the home, and those that are shown."""

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from cryptography import x509

from muster.app.doctor_check import Check
from muster.app.home import Home, RunningController
from muster.app.own_authority import AuthorityIncomplete, kept_authority
from muster.app.proxy_config import RunningProxy

SOON = timedelta(days=30)
"""A certificate that ends within this time is a fault: someone has to do something now."""
AUTHORITY_SOON = timedelta(days=180)
"""The same of an authority, whose successor has to reach every agent and person."""
SHOWN_TIMEOUT_S = 5.0


def certificate_checks(
    home: Home, running: RunningController | None, proxy: RunningProxy | None
) -> Iterator[Check]:
    """The certificates of the home's own authority, and of the controller and the proxy that
    run."""
    now = datetime.now(UTC)
    try:
        authority = kept_authority(home)
    except AuthorityIncomplete as error:
        yield Check("authority", False, str(error))
    else:
        if authority is not None:
            remedy = "plan another authority: every agent and person needs its ca.pem before then"
            ends = authority.certificate.not_valid_after_utc
            yield _judged("authority", str(home.authority), ends, now, AUTHORITY_SOON, remedy)
    for what, url in (
        ("controller", running.url if running is not None else ""),
        ("proxy", proxy.url if proxy is not None else ""),
    ):
        shown_end = _shown_end(url) if url.startswith("https:") else None
        if shown_end is not None:
            remedy = (
                f"start the {what} again with another certificate; a controller with "
                f"--tls-self-signed makes one at its start"
            )
            yield _judged(f"certificate of the {what}", url, shown_end, now, SOON, remedy)


def _judged(
    name: str, whose: str, ends: datetime, now: datetime, soon: timedelta, remedy: str
) -> Check:
    verb = "has ended on" if ends <= now else "ends on"
    return Check(name, ends > now + soon, f"{whose}: it {verb} {ends:%Y-%m-%d}", remedy)


def _shown_end(url: str) -> datetime | None:
    """When the certificate ends that is shown at an address; None if none can be had."""
    where = urlsplit(url)
    try:
        address = where.hostname or "", where.port or 443
        shown = ssl.get_server_certificate(address, timeout=SHOWN_TIMEOUT_S)
        return x509.load_pem_x509_certificate(shown.encode()).not_valid_after_utc
    except (OSError, ValueError):
        return None
