"""Settings of providers as they are shown."""

from typing import Any

import pytest

from muster.cli.described.settings import settings_lines


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("us-east-1", "us-east-1"),
        (["-v", "--token", "hush", "-x"], '["-v", "--token", "…", "-x"]'),
        (["--token=hush", "API_KEY=hush"], '["--token=…", "API_KEY=…"]'),
        (["export TOKEN=hush now"], '["export TOKEN=… now"]'),
        ("https://me:hush@host/path@2", "https://…@host/path@2"),
        ("curl -H Authorization: Bearer hush url", "curl -H Authorization: Bearer … url"),
        ({"environment": {"A": "hush"}, "b": 1}, '{"environment": {"A": "…"}, "b": 1}'),
        (
            {
                "env": [
                    {"name": "A", "value": "hush"},
                    {"name": "B", "valueFrom": {"c": "d"}},
                    "A=b",
                ]
            },
            '{"env": [{"name": "A", "value": "…"}, {"name": "B", "valueFrom": {"c": "d"}}, "…"]}',
        ),
        ({"password": ["hush", {"a": "hush"}]}, '{"password": ["…", {"a": "…"}]}'),
        (
            {"token_file": "/etc/t", "key_name": "mine"},
            '{"token_file": "/etc/t", "key_name": "mine"}',
        ),
        ("two\nlines", '"two\\nlines"'),
        (None, "null"),
    ],
)
def test_settings_are_shown_without_secrets(value: Any, said: str) -> None:
    assert settings_lines({"setting": value}) == [f"setting: {said}"]


def test_setting_with_the_name_of_a_secret_is_hidden() -> None:
    assert settings_lines({"api_token": "hush", "environment": {"A": "hush"}, "passwd": ""}) == [
        "api_token: …",
        'environment: {"A": "…"}',
        "passwd: ",
    ]
