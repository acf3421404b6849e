"""Requests of administrators about domains, projects and users. A request is refused before it
changes anything.

Live work must have an owner, so a user or a project is not removed while it has live work, unless
the work is cancelled with it.
"""

import json
from collections.abc import Callable, Collection

from muster.control.deployment.entity import Deployment
from muster.control.engine.module import Parts
from muster.control.engine.owned_work import OwnedWork
from muster.control.engine.setting_changes import note_change
from muster.control.engine.work import Work
from muster.control.identity.tokens import create_token, must_leave_an_admin, revoke
from muster.control.session.requests import SessionRequests
from muster.core.errors import Conflict, InvalidSpec, NotFound, Problem
from muster.core.owner import Owner, Principal, Role
from muster.core.serving.hosts import is_covered
from muster.core.settings import SettingKind
from muster.core.specs.account import DEFAULT, DomainSpec, ProjectSpec, TokenSpec, UserSpec
from muster.store import schema
from muster.store.accounts import Accounts, Project, User
from muster.store.batch import deleting, inserting, updating
from muster.store.records import Session
from muster.store.tokens import Token

_ADD_DOMAIN = inserting(schema.domains, ("name", "created_at"))
_DROP_DOMAIN = deleting(schema.domains, ("name",))
_ADD_PROJECT = inserting(schema.projects, ("domain", "name", "created_at", "hosts"))
_WRITE_HOSTS = updating(schema.projects, ("hosts",), ("domain", "name"))
_DROP_PROJECT = deleting(schema.projects, ("domain", "name"))
_ADD_USER = inserting(schema.users, ("domain", "name", "projects", "created_at"))
_DROP_USER = deleting(schema.users, ("domain", "name"))
_WRITE_PROJECTS = updating(schema.users, ("projects",), ("domain", "name"))

MAX_TOLD_OUTSIDE = 100
"""Hosts that stand outside of what a project may use, as they are told to who sets that."""
MAX_NAMED = 10_000
"""Domains at most; likewise projects, and users."""


def add_domain(work: Work, spec: DomainSpec) -> str:
    """Add a domain.

    Raises:
        Conflict: there is one of this name, or there are too many.
    """
    domains = work.live.accounts.domains
    _must_be_new(spec.name in domains, f"domain {spec.name}", len(domains))
    domains[spec.name] = work.now
    work.unit.also_rows(_ADD_DOMAIN, (spec.name, work.now))
    note_change(work, SettingKind.DOMAIN, spec.name, None, {})
    return spec.name


def remove_domain(work: Work, name: str) -> None:
    """Forget a domain.

    Raises:
        NotFound: there is none.
        Conflict: it has users or projects.
    """
    accounts = work.live.accounts
    if name not in accounts.domains:
        raise NotFound(f"there is no domain {name!r}")
    users = sum(domain == name for domain, _ in accounts.users)
    projects = sum(domain == name for domain, _ in accounts.projects)
    if users or projects:
        raise Conflict(
            f"domain {name} has {users} users and {projects} projects: remove those first"
        )
    del accounts.domains[name]
    work.unit.also_rows(_DROP_DOMAIN, (name,))
    note_change(work, SettingKind.DOMAIN, name, {}, None)


def add_project(work: Work, spec: ProjectSpec) -> Project:
    """Add a project.

    Raises:
        InvalidSpec: there is no such domain.
        Conflict: there is one of this name, or there are too many.
    """
    accounts = work.live.accounts
    key = (spec.domain, spec.name)
    _must_know_domain(accounts, spec.domain)
    _must_be_new(key in accounts.projects, f"project {_path(key)}", len(accounts.projects))
    project = Project(spec.domain, spec.name, work.now, tuple(dict.fromkeys(spec.hosts)))
    accounts.projects[key] = project
    row = project.domain, project.name, project.created_at, json.dumps(project.hosts)
    work.unit.also_rows(_ADD_PROJECT, row)
    note_change(work, SettingKind.PROJECT, _path(key), None, {"hosts": project.hosts})
    return project


def set_hosts(
    work: Work, domain: str, name: str, hosts: Collection[str]
) -> tuple[Project, tuple[str, ...]]:
    """Have the deployments of a project use these names of hosts, and names below them, and no
    others. The answer has the hosts outside of them that live deployments of the project have: they
    keep these until they are handed in with another.

    Raises:
        NotFound: there is no such project.
    """
    project = work.live.accounts.projects.get((domain, name))
    if project is None:
        raise NotFound(f"there is no project {_path((domain, name))!r}")
    before = {"hosts": project.hosts}
    project.hosts = tuple(dict.fromkeys(hosts))
    work.unit.also_rows(_WRITE_HOSTS, (json.dumps(project.hosts), domain, name))
    path = _path((domain, name))
    note_change(work, SettingKind.PROJECT, path, before, {"hosts": project.hosts})
    standing = (
        deployment.host
        for deployment in work.live.of(Deployment).values()
        if (deployment.owner.domain, deployment.owner.project) == (domain, name)
        and deployment.host is not None
        and not deployment.is_going
    )
    outside = sorted(host for host in standing if not is_covered(host, project.hosts))
    return project, tuple(outside[:MAX_TOLD_OUTSIDE])


def remove_project(
    work: Work, parts: Parts, by: Principal, domain: str, name: str, *, cancel: bool
) -> None:
    """Forget a project, and the tokens that are good for it alone; its users keep their others.

    Raises:
        NotFound: there is none.
        Conflict: it is a user's only project, or has live work that is not to be cancelled.
    """
    accounts, key = work.live.accounts, (domain, name)
    if key not in accounts.projects:
        raise NotFound(f"there is no project {_path(key)!r}")
    members = [u for u in accounts.users.values() if u.domain == domain and name in u.projects]
    only = [user.name for user in members if len(user.projects) == 1]
    if only:
        some = ", ".join(only[:5]) + (", …" if len(only) > 5 else "")
        raise Conflict(f"project {_path(key)} is the only one of {some}: give them another first")

    def concerned(owner: Owner) -> bool:
        return (owner.domain, owner.project) == key

    tokens = [t for t in accounts.tokens if (t.domain, t.project) == key]
    must_leave_an_admin(work, tokens)
    _end_work(work, parts, by, f"project {_path(key)}", concerned, cancel=cancel)
    for user in members:
        _write_projects(work, user, tuple(each for each in user.projects if each != name))
    for token in tokens:
        revoke(work, token)
    gone = accounts.projects.pop(key)
    work.unit.also_rows(_DROP_PROJECT, key)
    note_change(work, SettingKind.PROJECT, _path(key), {"hosts": gone.hosts}, None)


def add_user(work: Work, spec: UserSpec) -> User:
    """Add a user.

    Raises:
        InvalidSpec: there is no such domain, or no such project in it.
        Conflict: there is one of this name, or there are too many.
    """
    accounts = work.live.accounts
    key = (spec.domain, spec.name)
    _must_know_domain(accounts, spec.domain)
    projects = _known_projects(accounts, spec.domain, spec.projects)
    _must_be_new(key in accounts.users, f"user {_path(key)}", len(accounts.users))
    user = User(spec.domain, spec.name, projects, work.now)
    accounts.users[key] = user
    row = user.domain, user.name, json.dumps(user.projects), user.created_at
    work.unit.also_rows(_ADD_USER, row)
    note_change(work, SettingKind.USER, _path(key), None, {"projects": user.projects})
    return user


def change_user(
    work: Work,
    parts: Parts,
    by: Principal,
    domain: str,
    name: str,
    projects: Collection[str],
    *,
    cancel: bool,
) -> User:
    """Put a user in these projects and no others; tokens for other projects are revoked.

    Raises:
        NotFound: there is no such user.
        InvalidSpec: there is no such project.
        Conflict: a project that is left has live work of the user's that is not to be cancelled.
    """
    accounts = work.live.accounts
    user = _user(accounts, domain, name)
    now_in = _known_projects(accounts, domain, projects)
    left = set(user.projects) - set(now_in)

    def concerned(owner: Owner) -> bool:
        return (owner.domain, owner.user) == (domain, name) and owner.project in left

    tokens = [token for token in _tokens_of(accounts, user) if token.project in left]
    must_leave_an_admin(work, tokens)
    who = f"user {_path((domain, name))} in {', '.join(sorted(left))}"
    _end_work(work, parts, by, who, concerned, cancel=cancel)
    for token in tokens:
        revoke(work, token)
    _write_projects(work, user, now_in)
    return user


def remove_user(
    work: Work, parts: Parts, by: Principal, domain: str, name: str, *, cancel: bool
) -> None:
    """Forget a user, and revoke all of the user's tokens.

    Raises:
        NotFound: there is no such user.
        Conflict: the user has live work that is not to be cancelled, or holds the last
            administrator's token.
    """
    accounts = work.live.accounts
    user = _user(accounts, domain, name)
    tokens = _tokens_of(accounts, user)
    must_leave_an_admin(work, tokens)

    def concerned(owner: Owner) -> bool:
        return (owner.domain, owner.user) == (domain, name)

    _end_work(work, parts, by, f"user {_path((domain, name))}", concerned, cancel=cancel)
    for token in tokens:
        revoke(work, token)
    del accounts.users[domain, name]
    work.unit.also_rows(_DROP_USER, (domain, name))
    path = _path((domain, name))
    note_change(work, SettingKind.USER, path, {"projects": user.projects}, None)


def _user(accounts: Accounts, domain: str, name: str) -> User:
    user = accounts.users.get((domain, name))
    if user is None:
        raise NotFound(f"there is no user {_path((domain, name))!r}")
    return user


def _tokens_of(accounts: Accounts, user: User) -> list[Token]:
    return [t for t in accounts.tokens if (t.domain, t.user) == (user.domain, user.name)]


def _end_work(
    work: Work,
    parts: Parts,
    by: Principal,
    whose: str,
    concerned: Callable[[Owner], bool],
    *,
    cancel: bool,
) -> None:
    """Cancel the live work of the owners concerned.

    Raises:
        Conflict: there is live work, and it is not to be cancelled.
    """
    kinds = parts.derived_from(OwnedWork)
    owned = {kind: kind.owned(work, concerned) for kind in kinds}
    alone = (each for each in work.live.sessions.values() if each.job is None)
    sessions: list[Session] = [
        session
        for session in alone
        if concerned(session.owner) and not any(kind.drives(session.id) for kind in kinds)
    ]
    if (any(owned.values()) or sessions) and not cancel:
        counts = [f"{len(ids)} {kind.plural}" for kind, ids in owned.items()]
        counts.append(f"{len(sessions)} sessions of their own")
        raise Conflict(
            f"{whose} has work that is alive ({', '.join(counts)}): wait for it, or cancel it with "
            "--cancel"
        )
    for kind, ids in owned.items():
        for id_ in ids:
            kind.end(work, by, id_)
    for session in sessions:
        parts[SessionRequests].cancel(work, by, session.id)


def _write_projects(work: Work, user: User, projects: tuple[str, ...]) -> None:
    before = {"projects": user.projects}
    user.projects = projects
    work.unit.also_rows(_WRITE_PROJECTS, (json.dumps(projects), user.domain, user.name))
    path = _path((user.domain, user.name))
    note_change(work, SettingKind.USER, path, before, {"projects": projects})


def _known_projects(accounts: Accounts, domain: str, named: Collection[str]) -> tuple[str, ...]:
    """
    Raises:
        InvalidSpec: the domain has no such project.
    """
    known = sorted(name for of, name in accounts.projects if of == domain)
    problems = [
        Problem("projects", repr(name), f"domain {domain} has these projects: {_all(known)}")
        for name in named
        if name not in known
    ]
    if problems:
        raise InvalidSpec(problems)
    return tuple(dict.fromkeys(named))


def _must_know_domain(accounts: Accounts, domain: str) -> None:
    """
    Raises:
        InvalidSpec: there is no such domain.
    """
    if domain not in accounts.domains:
        expected = f"expected a domain that there is: {_all(accounts.domains)}"
        raise InvalidSpec([Problem("domain", repr(domain), expected)])


def _must_be_new(taken: bool, kind: str, so_far: int) -> None:
    """
    Raises:
        Conflict: the name is taken, or there are too many of its kind.
    """
    if taken:
        raise Conflict(f"there is a {kind} already")
    if so_far >= MAX_NAMED:
        raise Conflict(f"{kind} would be one too many: at most {MAX_NAMED:,} are kept")


def _all(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:20])
    return (shown + (", …" if len(names) > 20 else "")) or "none yet"


def _path(key: tuple[str, str]) -> str:
    return "/".join(key)


def ensure_user(work: Work, owner: Owner) -> None:
    """Add this owner's domain, project and user, where they do not exist."""
    accounts = work.live.accounts
    if owner.domain not in accounts.domains:
        add_domain(work, DomainSpec(name=owner.domain))
    if (owner.domain, owner.project) not in accounts.projects:
        add_project(work, ProjectSpec(domain=owner.domain, name=owner.project))
    if (owner.domain, owner.user) not in accounts.users:
        add_user(work, UserSpec(domain=owner.domain, name=owner.user, projects=(owner.project,)))


def first_admin(work: Work, name: str) -> str:
    """Make an administrator's token for a user of the default domain and project, who is added if
    there is none; the answer is its secret."""
    owner = Owner(DEFAULT, DEFAULT, name)
    ensure_user(work, owner)
    by = Principal(owner, Role.ADMIN)
    _, secret = create_token(work, by, TokenSpec(name="up", role=Role.ADMIN))
    return secret
