"""The agents of these tests take every message that the protocol has, and no other."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.control.conftest import MakeWorld

from muster.wire.messages import Commands

NONSENSE = SimpleNamespace(kernel="krn-1", generation=0)


@pytest.mark.parametrize("message", [NONSENSE, Commands((cast(Any, NONSENSE),))])
def test_message_or_command_of_an_unknown_kind_is_an_error(
    group_world: MakeWorld, message: Any
) -> None:
    agent = group_world({"a": 1}).agent("a")
    agent.online = False
    with pytest.raises(AssertionError, match="krn-1"):
        agent.receive(message)
