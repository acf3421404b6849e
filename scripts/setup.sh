#!/usr/bin/env bash
# Makes .venv: the locked dependencies and muster itself, editable. Repeating it is cheap and safe.
# PYTHON names the interpreter to use (default python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
uv_version=0.13.8
venv_python=.venv/bin/python

die() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# Installs Debian packages, or says which ones are missing and for what.
need_packages() {
    local reason=$1
    shift
    if ! command -v apt-get >/dev/null; then
        die "$reason." "Install it with your system's package manager (on Debian: $*), then run make again."
    elif [ "$(id -u)" -ne 0 ]; then
        die "$reason." "Install it as root, then run make again: apt-get install $*"
    fi
    echo "setup: $reason; installing $*"
    apt-get update -q || echo 'setup: apt-get update failed; trying with the lists at hand' >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" ||
        die "apt-get could not install $*; install them by hand, then run make again."
}

check_python() {
    if ! command -v "$python" >/dev/null; then
        [ -z "${PYTHON:-}" ] || die "PYTHON=$python: there is no such command."
        need_packages 'python3 is missing' python3 python3-venv
    fi
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        die "Muster needs Python 3.11 or newer; $python is $("$python" -V 2>&1)." \
            'Name a newer one: make setup PYTHON=python3.12'
}

make_venv() {
    check_python
    # Debian ships ensurepip, without which a venv has no pip, in a package of its own.
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        need_packages "$python has no venv module" \
            "$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')"
    "$python" -m venv --clear .venv
}

# An environment whose interpreter is gone, or is not the one asked for, is made anew.
venv_is_usable() {
    "$venv_python" -m pip --version >/dev/null 2>&1 || return 1
    [ -z "${PYTHON:-}" ] || [ "$("$venv_python" -V)" = "$("$PYTHON" -V)" ]
}

venv_is_usable || make_venv
[ "$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" = "$uv_version" ] ||
    "$venv_python" -m pip install --quiet --disable-pip-version-check "uv==$uv_version"

uv_install=(.venv/bin/uv pip install --quiet --python "$venv_python")
"${uv_install[@]}" --require-hashes -r requirements.lock
# Reinstalled even if it looks up to date: the build generates code from the proto files.
"${uv_install[@]}" --no-deps --no-build-isolation --reinstall-package muster-scheduler -e .

# Tests run on PostgreSQL too, and skip that part where there is no server.
if ! compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null && ! command -v postgres >/dev/null; then
    (need_packages 'the tests want a PostgreSQL server, which is missing' postgresql) ||
        echo 'setup: without it the tests run on SQLite alone' >&2
fi

# Those of the provider ssh run on OpenSSH's server, and are skipped without it. Where systemd runs, the
# package would start a server for everybody, so it is left to a person there.
if ! [ -x /usr/sbin/sshd ] && ! command -v sshd >/dev/null; then
    if [ -d /run/systemd/system ]; then
        echo 'setup: without openssh-server the tests of the provider ssh are skipped' >&2
    else
        (need_packages 'the tests want an OpenSSH server, which is missing' openssh-server) ||
            echo 'setup: without it the tests of the provider ssh are skipped' >&2
    fi
fi

# Those of traffic run on HAProxy and etcd, and are skipped without them.
for wanted in haproxy:haproxy etcd:etcd-server; do
    if ! PATH="$PATH:/usr/sbin" command -v "${wanted%%:*}" >/dev/null; then
        if [ -d /run/systemd/system ]; then
            echo "setup: without ${wanted#*:} the tests of ${wanted%%:*} are skipped" >&2
        else
            (need_packages "the tests want ${wanted%%:*}, which is missing" "${wanted#*:}") ||
                echo "setup: without it the tests of ${wanted%%:*} are skipped" >&2
        fi
    fi
done

# Those of ports write rules of nftables, whose package starts nothing, and are skipped without it.
if ! PATH="$PATH:/usr/sbin:/sbin" command -v nft >/dev/null; then
    (need_packages 'the tests want nft, which is missing' nftables) ||
        echo 'setup: without nftables the tests of rules for ports are skipped' >&2
fi

# Compiled now, so that no command compiles at each start what it imports: Python may be told not to
# write bytecode, or be run by who may not write here. What only the demonstration draws and learns
# with is left out, and so is what some package keeps that is no Python of this version.
"$venv_python" -m compileall -qq -j 0 -x '/(tests|scipy|sklearn|matplotlib|mpl_toolkits|fontTools)/' \
    src .venv/lib/python*/site-packages || true
