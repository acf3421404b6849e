"""The lines in which the probing process is told what to probe."""

import json
from collections.abc import Mapping

from muster.core.serving.probes import Watched
from muster.core.specs.serving import ProbeKind, ScaleMetric

_OURS = {"User-Agent": "muster-probe", "Accept": "*/*"}
_OF_METRIC = {
    "User-Agent": "muster-probe",
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
}


def write_order(route: str, watched: Watched | None) -> bytes:
    """The line for a route: what is probed from now on, or nothing."""
    return json.dumps({"route": route} if watched is None else _order(watched)).encode() + b"\n"


def _order(watched: Watched) -> dict[str, object]:
    probe, metric = watched.probe, watched.metric
    request = metric_request = b""
    if probe.kind is ProbeKind.HTTP:
        body = probe.body.encode()
        request = _request(watched, probe.method, probe.path, _OURS, probe.headers, body)
    name = metric.name if metric and metric.metric is ScaleMetric.PROMETHEUS else None
    if metric is not None and name:
        metric_request = _request(watched, "GET", metric.path, _OF_METRIC)
    return {
        "route": watched.route,
        "generation": watched.generation,
        "host": watched.host,
        "port": watched.port,
        "interval_s": probe.interval,
        "timeout_s": probe.timeout,
        "request": request.decode("latin-1"),
        "good": probe.status,
        "metric_request": metric_request.decode("latin-1"),
        "metric": name or "",
    }


def _request(
    watched: Watched,
    method: str,
    path: str,
    ours: Mapping[str, str],
    theirs: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> bytes:
    """A request of HTTP, in which headers that users give take the place of ours."""
    host = f"[{watched.host}]" if ":" in watched.host else watched.host
    headers = {"host": ("Host", f"{host}:{watched.port}")}
    headers |= {name.lower(): (name, value) for name, value in ours.items()}
    headers |= {name.lower(): (name, value) for name, value in (theirs or {}).items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.values())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
