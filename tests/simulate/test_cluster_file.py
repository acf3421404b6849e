from pathlib import Path

import pytest

from muster.core.errors import InvalidSpec, MusterError
from muster.core.resources import Device, Resources
from muster.core.specs.group import QueuePolicy
from muster.simulate.cluster_file import ClusterAgent, read_cluster
from muster.simulate.policy_file import DEFAULT, UnknownPolicy, read_policy

GIB = 2**30


def written(tmp_path: Path, text: str, name: str = "cluster.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def test_cluster_is_read_with_counts_devices_and_attributes(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        kind: cluster
        agents:
          - name: a100
            count: 2
            cpu: 64
            memory: 512GiB
            gpus: 2
            model: A100 SXM4
            attributes: {rack: r1}
          - {name: big, cpu: 500m, memory: 1GiB, disk: 2GiB, extra: {licence: 3}}
        """,
    )
    capacity = Resources(64_000, 512 * GIB, 0, 2000)
    devices = (Device(0, "A100 SXM4"), Device(1, "A100 SXM4"))
    assert read_cluster(path) == (
        ClusterAgent("a100-1", capacity, devices, (("rack", "r1"),)),
        ClusterAgent("a100-2", capacity, devices, (("rack", "r1"),)),
        ClusterAgent("big", Resources(500, GIB, 2 * GIB, 0, (("licence", 3000),))),
    )


def test_node_list_of_openb_is_a_cluster(tmp_path: Path) -> None:
    text = "sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1024,1,P100\nn2,8000,512,0,\n"
    assert read_cluster(written(tmp_path, text, "nodes.csv")) == (
        ClusterAgent("n1", Resources(64_000, GIB, 0, 1000), (Device(0, "P100"),)),
        ClusterAgent("n2", Resources(8_000, GIB // 2)),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("agents: []", r"agents is \[\]: expected at least 1"),
        ("agents: [{name: a, cpu: 4}]", r"agents\.0\.memory: missing"),
        ("agents: [{name: a, cpu: -4, memory: 0}]", r"agents\.0\.cpu is -4: expected"),
        ("agents: [{name: a, cpu: 4, memory: 64}]", r"agents\.0\.memory is 64: .* write 64GiB"),
        ("agents: [{name: a, cpus: 4, memory: 0}]", "did you mean cpu"),
        ("agents: [{name: a, cpu: 4, memory: 0, gpus: 1000}]", r"agents\.0\.gpus is 1000"),
        ("agents: [{name: a, cpu: 4, memory: 0, count: 0}]", r"agents\.0\.count is 0"),
        (
            "agents: [{name: a-1, cpu: 4, memory: 0}, {name: a, count: 2, cpu: 4, memory: 0}]",
            "two agents are called a-1",
        ),
        ("agents: [", "line 1: not readable"),
        ("kind: group\nname: a", "kind is 'group': expected 'cluster'"),
        ("", "expected keys and values"),
        ("agents: []\n---\nagents: []", "2 documents: expected one"),
    ],
)
def test_wrong_cluster_file_is_refused_with_the_place(
    tmp_path: Path, text: str, message: str
) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InvalidSpec, match=message) as refused:
        read_cluster(path)
    assert all(each.field.startswith(f"{path}: ") for each in refused.value.problems)


def test_cluster_file_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(MusterError, match=r"cannot read .*none\.yaml: No such file"):
        read_cluster(tmp_path / "none.yaml")


# -- policies ------------------------------------------------------------------------------------


def test_policy_is_its_parts_by_name_in_any_order() -> None:
    group = read_policy("strict+drf").group
    assert (group.sequencer, group.selector, group.queue) == (
        "drf",
        "concentrated",
        QueuePolicy.STRICT,
    )


def test_default_policy_is_that_of_a_new_group() -> None:
    new = read_policy("fifo").group
    named = read_policy(DEFAULT).group
    assert (named.sequencer, named.selector, named.queue) == (
        new.sequencer,
        new.selector,
        new.queue,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "concentratd",
            "no policy 'concentratd'; did you mean 'concentrated'? Known are selectors",
        ),
        ("", "there is no policy ''. Known are selectors"),
        ("fifo+drf", "two sequencers: fifo and drf"),
        ("fifo+fifo", "two sequencers: fifo and fifo"),
    ],
)
def test_unknown_policy_is_refused_with_those_that_are_known(text: str, message: str) -> None:
    with pytest.raises(UnknownPolicy) as refused:
        read_policy(text)
    assert message in str(refused.value)


def test_policy_file_is_a_group_and_its_quotas(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        "kind: group\nname: research\nqueue: strict\n"
        "---\nkind: quota\nname: default/research/ann\nlimits: {gpu: 4}\n"
        "---\nkind: quota\nname: '*/*/*'\nlimits: {gpu: 8}\n",
        "research.yaml",
    )
    found = read_policy(str(path))
    assert (found.name, found.group.name, found.group.queue) == ("research", "research", "strict")
    assert [quota.limits.gpu for quota in found.quotas] == [4000, 8000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: quota\nname: a/b/c", "there is no `kind: group`"),
        ("kind: job\ncommand: a", "kind is 'job': expected one `kind: group`"),
        ("kind: group\nname: a\n---\nkind: group\nname: b", "expected one `kind: group`"),
        ("kind: group\nname: a\nselctor: b", "did you mean selector"),
        ("kind: group\nname: a\noptions: {concentratd: {}}", "did you mean 'concentrated'"),
    ],
)
def test_wrong_policy_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text, "group.yaml")
    with pytest.raises(InvalidSpec, match=message):
        read_policy(str(path))
