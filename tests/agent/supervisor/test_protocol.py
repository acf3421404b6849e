"""Any line of input is either an operation or a complaint."""

import json
import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.supervisor.protocol import (
    KernelLimits,
    KernelOrder,
    Lease,
    Program,
    ProtocolError,
    StartKernels,
    Template,
    parse,
)

WORDS = st.sampled_from(
    [
        *("op", "start", "stop", "ack", "lease", "attach", "forget", "recall", "shutdown"),
        *("templates", "kernels", "command", "env", "workdir", "files", "grace_s", "id"),
        *("generation", "template", "devices", "shape", "queued", "seq", "until_s", "reason"),
    ]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=6),
    max_leaves=12,
)
OPS = ("start", "stop", "ack", "lease", "attach", "forget", "recall", "shutdown")


@given(st.binary(max_size=60))
def test_any_bytes_are_an_operation_or_a_complaint(line: bytes) -> None:
    with suppress(ProtocolError):
        parse(line, {})


@given(st.sampled_from(OPS), st.dictionaries(WORDS, VALUES, max_size=8))
def test_any_object_is_an_operation_or_a_complaint(op: str, message: dict[str, object]) -> None:
    with suppress(ProtocolError):
        parse(json.dumps({**message, "op": op}).encode(), {})


def test_start_is_read_with_its_defaults() -> None:
    line = {
        "op": "start",
        "templates": [{"command": ["run", "it"], "env": {"A": "1"}}],
        "kernels": [{"id": "k", "generation": 2, "devices": [0, "GPU-1"], "queued": True}],
    }

    template = Template(
        Program(("run", "it"), {"A": "1", "HOME": "/home"}, workdir=None, files={}),
        grace_s=10.0,
        limits=KernelLimits(),
        log_max_bytes=64 << 20,
    )
    order = KernelOrder("k", 2, template, {}, (0, "GPU-1"), 1000, "", queued=True)
    assert parse(json.dumps(line).encode(), {"A": "default", "HOME": "/home"}) == StartKernels(
        (order,)
    )


@pytest.mark.parametrize(
    "more",
    [
        {"result_bytes": 1 << 20},
        {"result_bytes": -1},
    ],
)
def test_result_is_bounded(more: dict[str, object]) -> None:
    line = {"op": "start", "templates": [{"command": ["x"], **more}], "kernels": []}
    with pytest.raises(ProtocolError, match="result_bytes"):
        parse(json.dumps(line).encode(), {})


@pytest.mark.parametrize("kernel_id", ["", ".", "..", ".a", "-rf", "a/b", "a\n", "ä", "x" * 129])
def test_id_that_could_be_another_file_is_refused(kernel_id: str) -> None:
    line = {"op": "forget", "kernels": [{"id": kernel_id, "generation": 1}]}

    with pytest.raises(ProtocolError, match="is no kernel id"):
        parse(json.dumps(line).encode(), {})


def test_deep_nesting_is_a_complaint() -> None:
    with pytest.raises(ProtocolError, match="not JSON"):
        parse(b"[" * 100_000, {})


def test_seconds_may_be_whole() -> None:
    assert parse(b'{"op":"lease","until_s":300}', {}) == Lease(300.0)
    assert parse(b'{"op":"lease","until_s":null}', {}) == Lease(math.inf)
