#!/bin/sh
# setup_venv.sh [VENV [LOCK]]: make or refresh VENV (.venv) from LOCK (requirements.lock) and install shoal in it, editable.
# Quiet unless something fails. Exit 3: no usable Python, and one line says what to install.
# Set PYTHON to choose the interpreter. Two runs at once are safe: the second waits, then finds the work done.
set -eu

cd "$(dirname "$0")/.."
root=$(pwd -P)
venv=${1:-.venv}
lock=${2:-requirements.lock}
stamp=$venv/.stamp # holds the path of the repository: a copied or moved .venv is not trusted
unset PYTHONHOME PYTHONPATH PIP_TARGET PIP_PREFIX PIP_USER

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
can_make_venv() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

# Sets `python` to the first interpreter that is new enough and can make a venv.
find_python() {
    python='' lame=''
    if [ -n "${PYTHON:-}" ] && ! is_new_enough "$PYTHON"; then
        echo "setup_venv: PYTHON=$PYTHON is not Python 3.11 or newer; trying others" >&2
    fi
    for candidate in ${PYTHON:+"$PYTHON"} python3 python3.13 python3.12 python3.11; do
        is_new_enough "$candidate" || continue
        if can_make_venv "$candidate"; then
            python=$candidate
            return
        fi
        lame=${lame:-$candidate}
    done
    if [ -n "$lame" ]; then
        version=$("$lame" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
        echo "setup_venv: $lame has no venv module; fix: apt install python$version-venv" >&2
    else
        echo "setup_venv: no Python 3.11 or newer found; fix: apt install python3.11-venv, or set PYTHON" >&2
    fi
    exit 3
}

is_fresh() {
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$root" ] && "$venv/bin/python" -c '' 2>/dev/null &&
        [ -z "$(find "$lock" pyproject.toml scripts/setup_venv.sh -newer "$stamp")" ]
}

# Runs a command with its output kept back; shows it only on failure.
quietly() {
    if ! "$@" >"$log" 2>&1 </dev/null; then
        cat "$log" >&2
        echo "setup_venv: failed: $*" >&2
        exit 1
    fi
}

find_python

# The kernel frees this lock when the shell ends, however it ends. Python takes it on the shell's open file,
# because not every system has flock(1).
exec 9>>"$venv.lock"
"$python" -c 'import fcntl; fcntl.flock(0, fcntl.LOCK_EX)' <&9

if is_fresh; then
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A changed lock means a new venv, so that nothing of the old one stays; otherwise only shoal is refreshed.
same_place=no
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$root" ]; then same_place=yes; fi
rm -f "$stamp"
if [ $same_place = no ] || ! cmp -s "$lock" "$venv/requirements.lock" ||
    ! "$venv/bin/python" -c '' 2>/dev/null; then
    rm -rf "$venv"
    quietly "$python" -m venv "$venv"
    quietly "$venv/bin/python" -m pip --disable-pip-version-check --no-input install \
        --require-hashes -r "$lock"
    cp "$lock" "$venv/requirements.lock"
fi
quietly "$venv/bin/python" -m pip --disable-pip-version-check --no-input install \
    --no-deps --no-build-isolation -e .
# As pip does with what it installs otherwise: where PYTHONDONTWRITEBYTECODE is set, every start would compile it all.
quietly "$venv/bin/python" -m compileall -q src
echo "$root" >"$stamp"
