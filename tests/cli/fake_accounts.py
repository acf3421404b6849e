"""The part of ``FakeCluster`` about who there is."""

from abc import ABC, abstractmethod
from typing import Any

from msgspec import structs

from muster.core.owner import Role
from muster.core.views.accounts import (
    DomainView,
    JoinTokenView,
    NewJoinTokenView,
    NewTokenView,
    ProjectView,
    TokenView,
    UserView,
    WhoamiView,
)

NOW = 1_763_672_400.0
TOKEN = TokenView(
    id="tok-01kaec7mc2qv3x9p",
    name="laptop",
    domain="default",
    user="ann",
    role=Role.USER,
    created_at=NOW - 60,
    expires_at=NOW + 30 * 86400,
)
JOIN_TOKEN = JoinTokenView(
    id="tok-01kaed7md2qv3x9p",
    agent="gpu-7",
    uses_left=1,
    made_by="root",
    created_at=NOW,
    expires_at=NOW + 3600,
)


class FakeAccounts(ABC):
    """One user, one project, one domain, one token of each kind."""

    asked: list[tuple[str, Any]]
    ca = None

    @abstractmethod
    def _answer(self) -> None: ...

    def whoami(self) -> WhoamiView:
        return WhoamiView(
            domain="default",
            user="ann",
            project="research",
            projects=("research", "speech"),
            role=Role.USER,
            token=TOKEN,
        )

    def users(self) -> list[UserView]:
        user = UserView(domain="default", name="ann", projects=("research",), created_at=NOW)
        return [structs.replace(user, uid=2_000_000_000), structs.replace(user, name="carl")]

    def add_user(self, name: str, projects: list[str], domain: str) -> UserView:
        self.asked.append(("add_user", (name, projects, domain)))
        return UserView(
            domain=domain, name=name, projects=tuple(projects), created_at=NOW, warning="mind this"
        )

    def set_projects(
        self, name: str, projects: list[str], domain: str, *, cancel: bool
    ) -> UserView:
        self.asked.append(("set_projects", (name, projects, domain, cancel)))
        return UserView(domain=domain, name=name, projects=tuple(projects), created_at=NOW)

    def remove_user(self, name: str, domain: str, *, cancel: bool) -> None:
        self._answer()
        self.asked.append(("remove_user", (name, domain, cancel)))

    def projects(self) -> list[ProjectView]:
        hosts = ("research.example.org",)
        return [ProjectView(domain="default", name="research", created_at=NOW, hosts=hosts)]

    def add_project(self, name: str, domain: str, hosts: list[str]) -> ProjectView:
        self.asked.append(("add_project", (name, domain, hosts)))
        return ProjectView(domain=domain, name=name, created_at=NOW, hosts=tuple(hosts))

    def set_hosts(self, project: str, hosts: list[str], domain: str) -> ProjectView:
        self.asked.append(("set_hosts", (project, hosts, domain)))
        return ProjectView(
            domain=domain,
            name=project,
            created_at=NOW,
            hosts=tuple(hosts),
            outside=("chat.example.org",),
        )

    def remove_project(self, name: str, domain: str, *, cancel: bool) -> None:
        self.asked.append(("remove_project", (name, domain, cancel)))

    def domains(self) -> list[DomainView]:
        return [DomainView(name="default", created_at=NOW)]

    def add_domain(self, name: str) -> DomainView:
        self.asked.append(("add_domain", name))
        return DomainView(name=name, created_at=NOW)

    def remove_domain(self, name: str) -> None:
        self.asked.append(("remove_domain", name))

    def tokens(self) -> list[TokenView]:
        return [TOKEN]

    def create_token(self, name: str, **fields: Any) -> NewTokenView:
        self.asked.append(("create_token", (name, fields)))
        return NewTokenView(token=TOKEN, secret="the-secret")

    def revoke_token(self, ref: str) -> TokenView:
        self.asked.append(("revoke_token", ref))
        return TOKEN

    def join_tokens(self) -> list[JoinTokenView]:
        return [JOIN_TOKEN]

    def create_join_token(self, agent: str | None, **fields: Any) -> NewJoinTokenView:
        self.asked.append(("create_join_token", (agent, fields)))
        token = JoinTokenView(
            id="tok-01kae", agent=agent, group=fields["group"], made_by="root", created_at=NOW
        )
        return NewJoinTokenView(token=token, secret="-join it", agent_address="127.0.0.1:7601")

    def revoke_join_token(self, ref: str) -> JoinTokenView:
        self.asked.append(("revoke_join_token", ref))
        return JOIN_TOKEN
