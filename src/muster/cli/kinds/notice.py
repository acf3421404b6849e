"""Notices on the command line."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from muster.cli.kinds.kind import Kind, Shown
from muster.core.views.notices import NoticeView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from muster.client import Client


class NoticeKind(Kind[NoticeView, NoticeView]):
    """Notices. They have no names, and are not offered: `muster notify list` lists them."""

    name = "notice"

    def described(
        self, console: "Console", client: "Client", found: NoticeView, shown: Shown
    ) -> "Sequence[RenderableType]":
        from muster.cli.described.notice import notice_parts

        return notice_parts(found, time.time())


KIND = NoticeKind()
