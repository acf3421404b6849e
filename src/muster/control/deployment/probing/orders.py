"""The orders to probers, by what is to be probed."""

from collections.abc import Mapping

from muster.core.host_port import joined
from muster.core.serving.probes import ProbeOrder, ProbeTarget, Watched
from muster.core.serving.secret import SECRET_HEADER
from muster.core.specs.serving import ProbeKind, ScaleMetric

_OURS = {"User-Agent": "muster-probe", "Accept": "*/*"}
_OF_METRIC = {
    "User-Agent": "muster-probe",
    "Accept": "text/plain;version=0.0.4",
    "Accept-Encoding": "identity",
}


def order_of(watched: Watched) -> ProbeOrder:
    """The order to a prober, with the requests that it sends."""
    probe, metric = watched.probe, watched.metric
    request = metric_request = b""
    if probe.kind is ProbeKind.HTTP:
        body = probe.body.encode()
        request = _request(watched, probe.method, probe.path, _OURS, probe.headers, body)
    name = metric.name if metric and metric.metric is ScaleMetric.PROMETHEUS else None
    if metric is not None and name:
        metric_request = _request(watched, "GET", metric.path, _OF_METRIC)
    target = ProbeTarget(
        host=watched.host,
        port=watched.port,
        interval_s=probe.interval,
        timeout_s=probe.timeout,
        request=request,
        good=probe.status,
        metric_request=metric_request,
        metric=name or "",
        kernel=watched.kernel,
        kernel_generation=watched.kernel_generation,
    )
    return ProbeOrder(watched.route, watched.generation, target)


def _request(
    watched: Watched,
    method: str,
    path: str,
    ours: Mapping[str, str],
    theirs: Mapping[str, str] | None = None,
    body: bytes = b"",
) -> bytes:
    """A request of HTTP, in which headers that users give take the place of ours, but for that of
    the secret."""
    headers = {"host": ("Host", joined(watched.host, watched.port))}
    headers |= {name.lower(): (name, value) for name, value in ours.items()}
    headers |= {name.lower(): (name, value) for name, value in (theirs or {}).items()}
    if watched.secret:
        headers[SECRET_HEADER.lower()] = (SECRET_HEADER, watched.secret)
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.values())]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body
