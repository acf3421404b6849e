"""A provider's settings as they are shown."""

import json
from collections.abc import Mapping
from typing import Any

from muster.core.hidden import without_secrets


def settings_lines(settings: Mapping[str, Any]) -> list[str]:
    """The settings, each on a line: ``region: us-east-1``."""
    return [f"{name}: {_said(value)}" for name, value in without_secrets(settings).items()]


def _said(value: Any) -> str:
    if isinstance(value, str) and value.isprintable():
        return value
    return json.dumps(value, ensure_ascii=False)
