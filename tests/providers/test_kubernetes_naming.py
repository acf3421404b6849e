"""Names and labels of pods: valid to Kubernetes, and different for what is different."""

from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from tests.providers.kubernetes_rules import DNS_LABEL, KEY, LABEL_VALUE

from muster.providers.kubernetes import naming
from muster.providers.provider import Scope

NAMES = st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
TEXTS = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=80),
    NAMES,
    st.text(max_size=80).map(naming.label_value),  # texts that look like what others become
    st.sampled_from(["", "a", "A", "sl-1", "sl_1", "sl.1", "SL-1", "x" * 63, "x" * 64, "-a", "a-"]),
)


def slice_of(cluster: str, pool: str, slice_: str) -> tuple[Scope, str]:
    return Scope(cluster, pool, Path("unused")), slice_


SLICES = st.builds(slice_of, TEXTS, TEXTS, TEXTS)


@given(TEXTS, TEXTS)
def test_labels_are_valid_and_tell_texts_apart(one: str, other: str) -> None:
    assert LABEL_VALUE.fullmatch(naming.label_value(one))
    assert naming.label_value(one)
    assert (naming.label_value(one) == naming.label_value(other)) == (one == other)


@given(NAMES)
def test_names_are_their_own_labels(name: str) -> None:
    assert naming.label_value(name) == name


@given(SLICES, SLICES)
@example(slice_of("c", "one", "sl-1"), slice_of("c", "on", "esl-1"))
@example(slice_of("c", "one", "sl-1"), slice_of("co", "ne", "sl-1"))
def test_names_are_valid_and_tell_slices_of_all_pools_apart(
    one: tuple[Scope, str], other: tuple[Scope, str]
) -> None:
    first, second = naming.pod_name(*one, 0), naming.pod_name(*other, 0)
    assert DNS_LABEL.fullmatch(first), "a name that is a host name as well"
    assert DNS_LABEL.fullmatch(naming.pod_name(*one, 999))
    assert DNS_LABEL.fullmatch(naming.secret_name(*one))
    assert (first == second) == (one == other)
    assert naming.pod_name(*one, 1) != first


def test_keys_are_valid() -> None:
    for key in naming.of_machine(Scope("c-1", "one", Path("unused")), "sl-1", "m-1"):
        assert KEY.fullmatch(key)
