"""Uids of users: numbers by which machines know them, where no operator has given them accounts.

The controller allots one to a user, for the whole cluster, so that files on a shared file system
belong to the same user on every machine, and to nobody else on any.
"""

import hashlib
from typing import NamedTuple

LEAST_UID = 1000
"""Lower uids belong to services of machines."""
MOST_UID = 2**31 - 1
"""The first number that is too large for a uid everywhere."""
UIDS_OF_CLUSTERS = range(1_879_048_192, MOST_UID)
"""The uids that clusters allot unless an operator says otherwise: those that systemd leaves to
nobody (https://systemd.io/UIDS-GIDS), beyond those of people, containers and directory services."""
MOST_OF_CLUSTER = 65_536
_STEP = 1000


class ClusterUid(NamedTuple):
    """The uid that a cluster has allotted to a user.

    Args:
        cluster: the id of the cluster, which tells its users from those of others on a machine.
        uid: None says that the cluster has none left.
    """

    cluster: str
    uid: int | None


def uids_of(cluster: str) -> range:
    """The range from which a cluster allots uids unless an operator says otherwise: so many as
    ``MOST_OF_CLUSTER``, whose place among ``UIDS_OF_CLUSTERS`` follows from the cluster's id. So
    users of two clusters that share a machine or a file system hardly ever have the same uid."""
    first = -(-UIDS_OF_CLUSTERS.start // _STEP)
    last = (UIDS_OF_CLUSTERS.stop - MOST_OF_CLUSTER) // _STEP
    number = int.from_bytes(hashlib.sha256(cluster.encode()).digest()[:8], "big")
    start = (first + number % (last - first + 1)) * _STEP
    return range(start, start + MOST_OF_CLUSTER)


def parse_uids(text: str) -> range:
    """The uids from FIRST to LAST.

    Raises:
        ValueError: the text is no range of uids that users may have.
    """
    first, dash, last = text.partition("-")
    if dash and first.isascii() and last.isascii() and first.isdecimal() and last.isdecimal():
        uids = range(int(first), int(last) + 1)
        if LEAST_UID <= uids.start < uids.stop <= MOST_UID:
            return uids
    raise ValueError(f"expected FIRST-LAST from {LEAST_UID} on, such as 200000-265535")


def uids_said(uids: range) -> str:
    """The range as people write it."""
    return f"{uids.start}-{uids.stop - 1}"
