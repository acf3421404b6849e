"""The policies of a replay: by the names of their parts, or from a file."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path

from muster.core.errors import InvalidSpec, MusterError, Problem
from muster.core.specs import QuotaSpec, ScalingGroup, parse_spec
from muster.core.specs.documents import load_documents
from muster.core.specs.group import QueuePolicy
from muster.core.specs.pool import PoolSpec
from muster.scheduling.policy.group_policy import SELECTORS, SEQUENCERS, check_options
from muster.simulate.cluster_file import read_text

GROUP = "simulated"
"""The name of the scaling group of a policy that has no file."""

DEFAULT = "fifo+concentrated+backfill"
"""The policy of a new group."""

_SUFFIXES = (".yaml", ".yml", ".json")


class UnknownPolicy(MusterError):
    """No part of a policy has that name."""


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy, under the name that a person gave it."""

    name: str
    group: ScalingGroup
    quotas: tuple[QuotaSpec, ...] = ()
    pools: tuple[PoolSpec, ...] = ()


def read_policy(text: str) -> NamedPolicy:
    """The policy that ``text`` names: a file with a group and any number of quotas and pools, or
    the parts of a policy joined by ``+``, such as ``drf+fragmentation+strict``. Parts that are not
    named are a new group's.

    Raises:
        UnknownPolicy: no part has the name; two parts are of one kind.
        MusterError: the file cannot be read.
        InvalidSpec: the file is wrong somewhere; every problem is named.
    """
    if text.endswith(_SUFFIXES) or "/" in text:
        return _from_file(Path(text))
    kind_of = _kinds()
    chosen: dict[str, str] = {}
    for name in text.split("+"):
        kind = kind_of.get(name)
        if kind is None:
            raise UnknownPolicy(_unknown(name, kind_of))
        if kind in chosen:
            raise UnknownPolicy(f"{text!r} has two {kind}s: {chosen[kind]} and {name}")
        chosen[kind] = name
    return NamedPolicy(text, parse_spec(ScalingGroup, {"name": GROUP, **chosen}))


def _kinds() -> Mapping[str, str]:
    """The field of a group to which each known name belongs."""

    def known(kind: str, builtin: Iterable[str]) -> list[str]:
        return [*builtin, *sorted(entry_points(group=f"muster.{kind}").names)]

    kinds = dict.fromkeys(known("selectors", SELECTORS), "selector")
    kinds |= dict.fromkeys(known("sequencers", SEQUENCERS), "sequencer")
    return kinds | {str(queue): "queue" for queue in QueuePolicy}


def _unknown(name: str, kind_of: Mapping[str, str]) -> str:
    near = difflib.get_close_matches(name, list(kind_of), 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    parts = [
        f"{kind}s {', '.join(each for each, its in kind_of.items() if its == kind)}"
        for kind in dict.fromkeys(kind_of.values())
    ]
    return (
        f"there is no policy {name!r}{hint} Known are {'; '.join(parts)}; or name a group's file, "
        f"such as group.yaml"
    )


def _from_file(path: Path) -> NamedPolicy:
    group, quotas, problems = None, [], []
    pools: dict[str, PoolSpec] = {}
    try:
        for document in load_documents(read_text(path)):
            kind = document.get("kind")
            if kind == "quota":
                quotas.append(parse_spec(QuotaSpec, document))
            elif kind == "pool":
                pool = parse_spec(PoolSpec, document)
                if pool.name in pools:
                    problems.append(Problem("name", repr(pool.name), "another pool has this name"))
                pools[pool.name] = pool
            elif kind == "group" and group is None:
                group = parse_spec(ScalingGroup, document)
            else:
                expected = (
                    "expected one `kind: group`, and `kind: quota` and `kind: pool` as often as "
                    "you like"
                )
                problems.append(Problem("kind", repr(kind), expected))
        if group is None and not problems:
            problems.append(Problem("policy", "", "there is no `kind: group` in it"))
        if group is not None:
            problems += _of_other_groups(pools.values(), group)
        if problems or group is None:
            raise InvalidSpec(problems)
        check_options(group)
    except InvalidSpec as error:
        raise error.in_file(str(path)) from None
    return NamedPolicy(path.stem, group, tuple(quotas), tuple(pools.values()))


def _of_other_groups(pools: Iterable[PoolSpec], group: ScalingGroup) -> Iterator[Problem]:
    for pool in pools:
        if pool.group != group.name:
            expected = f"pool {pool.name} is of another group than the policy's, {group.name}"
            yield Problem("group", repr(pool.group), expected)
