"""The channels that work tells of its end, as a spec names them; their secrets are not shown."""

from typing import Any

import pytest

from muster.core.errors import InvalidSpec
from muster.core.specs import JobSpec, load_spec, parse_spec
from muster.core.specs.notify import MAX_CHANNELS, MAX_URL, NotifyOn, shown_url

TOKEN = "t0p-s3cr3t"
URL = f"https://hooks.example.org/{TOKEN}"


def channels(written: str) -> list[tuple[str, NotifyOn]]:
    spec = load_spec(f"command: x\nnotify: {written}")
    assert isinstance(spec, JobSpec)
    return [(each.url, each.on) for each in spec.notify]


@pytest.mark.parametrize(
    ("written", "on"),
    [
        (URL, NotifyOn.END),
        (f"[{URL}]", NotifyOn.END),
        (f"{{url: '{URL}', on: failure}}", NotifyOn.FAILURE),
        (f"[{{url: '{URL}', on: success}}]", NotifyOn.SUCCESS),
    ],
)
def test_channel_is_a_url_or_fields_alone_or_in_a_list(written: str, on: NotifyOn) -> None:
    assert channels(written) == [(URL, on)]


def test_several_channels_keep_their_order() -> None:
    assert channels(f"[{URL}, {{url: 'slack://a/b/c', on: failure}}]") == [
        (URL, NotifyOn.END),
        ("slack://a/b/c", NotifyOn.FAILURE),
    ]


@pytest.mark.parametrize(
    "notify",
    [
        f"hooks.example.org/{TOKEN}",
        f"https://a {TOKEN}",
        f"https://a/{TOKEN}\n",
        [f"https://{TOKEN}/" + "x" * MAX_URL],
        [f"https://{TOKEN}/\0"],
        [f"https://{TOKEN}/\ud800"],
        [URL] * (MAX_CHANNELS + 1),
        {"url": URL, "on": TOKEN},
        {"url": URL, TOKEN: "x"},
        {"url": [URL]},
        [[URL]],
        {"link": URL},
        {URL: None},
        {"url": URL, URL: "x"},
        [{URL: "\0"}],
        {URL: {URL: float("nan")}},
        5,
    ],
)
def test_wrong_channel_is_refused_with_nothing_of_it_told(notify: Any) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_spec(JobSpec, {"command": ["x"], "notify": notify})
    assert "notify" in str(refused.value)
    told = str(refused.value).replace(f"notify.0.{TOKEN}", "")  # a key is no value
    assert TOKEN not in told


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "https://hooks.example.org…"),
        (f"json://ada:{TOKEN}@hooks.example.org:8080/x?+Auth={TOKEN}", "json://hooks.example.org…"),
        (f"mailto://ada:{TOKEN}@example.org?to=x", "mailto://example.org…"),
        (f"SLACK://{TOKEN}/b/c", "slack://…"),
        (f"ntfy://{TOKEN}", "ntfy://…"),
        (f"tgram://{TOKEN}/1", "tgram://…"),
        (f"https://[{TOKEN}", "https://…"),
    ],
)
def test_channel_is_shown_by_its_service_and_machine_alone(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_spec_says_nothing_of_its_channels_when_it_is_printed() -> None:
    spec = parse_spec(JobSpec, {"command": ["x"], "notify": URL})
    assert TOKEN not in repr(spec) + str(spec)
