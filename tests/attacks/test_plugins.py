"""Plug-ins that raise or never answer, in the group in which the bystander's work is placed."""

import pytest
from tests.attacks.target import Target
from tests.patience import until

from muster.core.reasons import ReasonCode


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ({"selector": "raising_selector"}, "it raised RuntimeError"),
        ({"selector": "looping_selector"}, "it ran for more than"),
        ({"sequencer": "raising_sequencer"}, "it raised ZeroDivisionError"),
    ],
    ids=["selector that raises", "selector that loops", "sequencer that raises"],
)
def test_plugin_that_fails_is_replaced_and_named_and_work_goes_on(
    target: Target, policy: dict[str, str], why: str
) -> None:
    target.set_policy(**policy)
    try:
        with target.client() as admin:
            (told,) = until(lambda: admin.groups()[0].refused)
        assert told.code == ReasonCode.PLUGIN_REFUSED
        (name,) = policy.values()
        assert f"{name} of group default is not used: {why}" in told.sentence
        with target.client("mallory") as mallory:
            job = mallory.submit(command=["true"], tasks=4)
            assert mallory.wait(job.id, 30.0).state == "SUCCEEDED"
    finally:
        target.set_policy()
    with target.client() as admin:
        assert admin.groups()[0].refused == ()
