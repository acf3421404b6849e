"""What other threads of the agent see of kernels while these are handed to the supervisor."""

import random
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest
from proving.hollow.virtual_clock import VirtualClock
from tests.wire.controller import template

from muster.agent.accounts import Account, MachineAccounts
from muster.agent.kernels import Kernels
from muster.agent.ports import PreparedPorts
from muster.agent.removed_outputs import RemovedOutputs
from muster.agent.services import OwnServices
from muster.agent.supervisor_link import AccountsOf, SupervisorLink, Terms
from muster.core.ids import KernelId
from muster.core.reasons import ReasonCode
from muster.core.uids import ClusterUid
from muster.wire.messages import KernelKey, Start

KEY: KernelKey = (KernelId("krn-1"), 1)


class OwnAccount:
    def of(self, owner: str, uid: ClusterUid | None) -> Account | None:
        return None


class Link:
    """A supervisor that makes directories as soon as it is told; ``seen`` is whether the agent
    knew by then that their kernels are live."""

    def __init__(self, kernels: Kernels, too_large: bool) -> None:
        self.kernels, self.too_large = kernels, too_large
        self.seen: list[bool] = []

    def start(self, starts: Sequence[Start], terms: Terms, accounts: AccountsOf) -> list[Start]:
        self.seen += [self.kernels.is_live((each.kernel, each.generation)) for each in starts]
        return [*starts] if self.too_large else []


@pytest.mark.parametrize("too_large", [False, True])
def test_kernel_is_live_before_its_first_file_is_there(tmp_path: Path, too_large: bool) -> None:
    with closing(PreparedPorts(tmp_path, range(20_000, 20_010), random.Random(1))) as ports:
        kernels = Kernels(
            ports,
            tmp_path,
            RemovedOutputs(tmp_path / "removed-outputs"),
            cast(MachineAccounts, OwnAccount()),
            cast(OwnServices, None),
            cast(Terms, None),
            VirtualClock(),
        )
        link = Link(kernels, too_large)
        kernels.use(cast(SupervisorLink, link))
        kernels.obey([Start(*KEY, template("true"), {})])
        assert link.seen == [True], "or its scratch directory is measured before it is filled"
        assert kernels.is_live(KEY) is not too_large
        reasons = [each.reason for each in kernels.outbox.take(10).reports]
        assert reasons == [ReasonCode.CREATE_FAILED] * too_large
