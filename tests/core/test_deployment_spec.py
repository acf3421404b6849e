"""Specs of deployments that are refused, with the key that is wrong."""

from typing import Any

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs.deployment import DeploymentSpec
from muster.core.specs.load import spec_of
from muster.core.specs.serving import ProbeKind, ProbeSide

LEAST = {"name": "chat", "command": "serve"}
DEEP = {"steps": [{"weight": 1}] * 1_000_000, "strategy": "canary"}
BAD: list[tuple[str, dict[str, Any]]] = [
    ("replicas", {"replicas": -1}),
    ("replicas", {"replicas": 10**9}),
    ("replicas", {"replicas": 1.5}),
    ("replicas", {"replicas": True}),
    ("spec", {"replicas": 9, "scale": {"min": 1, "max": 3, "target": 1}}),
    ("port", {"port": 0}),
    ("port", {"port": 65536}),
    ("probe.path", {"probe": {"path": "health"}}),
    ("probe.path", {"probe": {"path": "/a b"}}),
    ("probe.path", {"probe": {"path": "/a\r\nX: 1"}}),
    ("probe.path", {"probe": {"path": "/" + "a" * 100_000}}),
    ("probe.headers", {"probe": {"headers": {"X": "a\r\nHost: b"}}}),
    ("probe.headers", {"probe": {"headers": {"X\nY": "a"}}}),
    ("probe.headers", {"probe": {"headers": {"Content-Length": "4"}}}),
    ("probe.headers", {"probe": {"headers": {f"X-{n}": "a" for n in range(100)}}}),
    ("probe.body", {"probe": {"body": "a" * 10**6}}),
    ("probe.method", {"probe": {"method": "DELETE"}}),
    ("probe.status", {"probe": {"status": "200-99"}}),
    ("probe.status", {"probe": {"status": []}}),
    ("probe", {"probe": {"kind": "command"}}),
    ("probe", {"probe": {"kind": "tcp", "command": "true"}}),
    ("probe", {"probe": {"command": "true", "side": "controller"}}),
    ("probe", {"probe": {"command": "true", "path": "/health"}}),
    ("probe.command", {"probe": {"command": ""}}),
    ("probe.command", {"probe": {"command": []}}),
    ("probe.interval", {"probe": {"interval": 1e-9}}),
    ("probe.interval", {"probe": {"interval": float("inf")}}),
    ("probe.timeout", {"probe": {"timeout": float("nan")}}),
    ("probe.timeout", {"probe": {"timeout": 0}}),
    ("probe.unhealthy_threshold", {"probe": {"unhealthy_threshold": 0}}),
    ("update.surge", {"update": {"surge": "-1"}}),
    ("update.surge", {"update": {"surge": "101%"}}),
    ("update.steps", {"update": {"strategy": "canary", "steps": []}}),
    ("update.steps", {"update": DEEP}),
    ("update.steps", {"update": {"strategy": "rolling", "steps": [{"weight": 10}]}}),
    ("update.steps", {"update": {"strategy": "canary", "steps": [{"weight": 110}]}}),
    (
        "update",
        {"update": {"strategy": "canary", "steps": [{"weight": 50}, {"weight": 20}]}},
    ),
    ("update.max_error_rate", {"update": {"max_error_rate": 101}}),
    ("scale", {"scale": {"min": 3, "max": 1, "target": 1}}),
    ("scale.target", {"scale": {"min": 1, "max": 2, "target": 0}}),
    ("scale.max", {"scale": {"min": 1, "max": 10**9, "target": 1}}),
    ("host", {"host": "a..b"}),
    ("host", {"host": "-a.b"}),
    ("host", {"host": "a" * 300}),
    ("affinity", {"affinity": "X Session"}),
    ("affinity.cookie", {"affinity": {"cookie": "a;b"}}),
    ("affinity", {"affinity": {"cookie": "a", "header": "X"}}),
    ("affinity", {"affinity": {}}),
    ("drain", {"drain": 10**9}),
    ("disruption", {"disruption": "200%"}),
    ("env", {"env": {"A": "a" * 10_000_000}}),
    ("placement.set", {"placement": {"set": "mine"}}),
    ("name", {"name": "a b"}),
    ("name", {"name": "a" * 1000}),
    ("colour", {"colour": "red"}),
    ("access", {"access": "everyone"}),
]


@pytest.mark.parametrize(("key", "keys"), BAD, ids=lambda value: str(value)[:40])
def test_what_is_wrong_is_named(key: str, keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as raised:
        spec_of({"kind": "deployment"} | LEAST | keys)
    assert any(each.field.startswith(key) for each in raised.value.problems), raised.value
    assert len(str(raised.value)) < 20_000, "what was wrong is not repeated at length"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("health", "probe"),
        ("healthcheck", "probe"),
        ("readinessProbe", "probe"),
        ("autoscaling", "scale"),
        ("strategy", "update"),
        ("instances", "replicas"),
    ],
)
def test_word_of_others_is_answered_with_the_key_that_it_means(word: str, meant: str) -> None:
    with pytest.raises(InvalidSpec, match=f"{word}: unknown key; did you mean {meant}\\?"):
        spec_of({"kind": "deployment", "name": "web", "command": ["x"], word: {}})


def test_word_for_access_that_is_none_is_answered_with_those_that_are() -> None:
    with pytest.raises(InvalidSpec) as raised:
        spec_of({"kind": "deployment", "access": "everyone"} | LEAST)
    (problem,) = raised.value.problems
    assert problem.value == "'everyone'"
    assert (
        problem.expected == "expected owner, public, or users and projects, such as {users: [ada]}"
    )


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("X-Session", "X-Session"),
        ({"header": "X-Session"}, "X-Session"),
        ({"cookie": "replica"}, {"cookie": "replica"}),
    ],
)
def test_affinity_is_by_a_header_or_a_cookie_and_is_stored_as_it_always_was(
    written: object, stored: object
) -> None:
    spec = spec_of({"kind": "deployment"} | LEAST | {"affinity": written})
    assert spec.model_dump(mode="json")["affinity"] == stored
    stored_whole = spec.model_dump(mode="json", exclude_unset=True)
    assert spec_of(stored_whole) == spec


def test_probe_by_command_is_the_agent_s_and_a_part_of_the_revision() -> None:
    def deployed(**probe: Any) -> DeploymentSpec:
        spec = spec_of({"kind": "deployment", "probe": probe} | LEAST)
        assert isinstance(spec, DeploymentSpec)
        return spec

    spec = deployed(command="true", interval=2)
    assert (spec.probe.kind, spec.probe.side) == (ProbeKind.COMMAND, ProbeSide.AGENT)
    assert spec.probe.command == ["/bin/sh", "-c", "true"]
    assert spec_of(spec.model_dump(mode="json", exclude_unset=True)) == spec
    others = [deployed(command="false", interval=2), deployed(command="true", interval=3)]
    assert len({each.digest() for each in (spec, *others, deployed())}) == 4
    assert deployed(command="true", interval=2, evict_after=9).digest() == spec.digest()
    assert deployed(interval=2).digest() == deployed().digest()
