# shellcheck shell=bash
# The set-up that the scripts share. Sourced, never run.
#
#   set_up EXTRAS   makes .venv in the repository, installs tinsmith[EXTRAS] there (editable; "" for
#                   no extras), and sets $VENV_PYTHON. Quick when nothing changed: a stamp in .venv
#                   says what it was made from. Every other Python on the machine is left alone.
#   set_up_kept TORCH EXTRAS [NAME]
#                   the same with that version of torch, in an environment which all checkouts on this
#                   machine share, and which outlives them. One for each version of Python and torch,
#                   and for each name.
#
# Settings from outside:
#   PYTHON=...      the Python to make .venv with; else the first on the PATH that fits
#   NO_VENV=1       install nothing and use that Python as it is (a container that has everything)
#   TINSMITH_ENVIRONMENTS=...
#                   the folder of the kept environments; else ~/.cache/tinsmith/environments

set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$ROOT/.venv
TORCH_OLDEST=2.6.0   # the lower bound of pyproject.toml
TORCH_PINNED=2.13.0  # what a .venv without torch gets; one that has it keeps its own
TORCH_NEWEST=2.15.0  # the last release below the upper bound of pyproject.toml
TORCH=$TORCH_PINNED
ENVIRONMENTS=${TINSMITH_ENVIRONMENTS:-${XDG_CACHE_HOME:-$HOME/.cache}/tinsmith/environments}
export -n TINSMITH_ENVIRONMENTS  # for the scripts alone: the package refuses settings that it does not know
OLDEST=10            # Python 3.OLDEST to 3.NEWEST: what the engines have wheels for
NEWEST=13

fail() {
    echo "$(basename "$0"): $*" >&2
    exit 1
}

fits() {
    "$1" -c "import sys; sys.exit(not (3, $OLDEST) <= sys.version_info[:2] <= (3, $NEWEST))" 2>/dev/null
}

# Sets $BASE_PYTHON. Tries to run each name: a shim on the PATH may lead nowhere.
find_python() {
    local name seen=""
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python python3.13 python3.12 python3.11 python3.10
    fi
    for name in "$@"; do
        if fits "$name"; then
            BASE_PYTHON=$name
            return
        fi
        seen="$seen$("$name" --version 2>/dev/null | sed "s|.*|, $name is &|" || true)"
    done
    [ -n "$seen" ] || fail "no Python found${PYTHON:+ at $PYTHON}; install Python 3.$OLDEST to 3.$NEWEST"
    fail "needs Python 3.$OLDEST to 3.$NEWEST${seen}; install one, or name it: PYTHON=/path/to/python $0"
}

# What is installed depends on these; the path too, since an editable install points here. (In a kept
# environment it does not matter, where PYTHONPATH says which checkout is meant.)
fingerprint() {
    local place=$ROOT
    [ "$VENV" = "$ROOT/.venv" ] || place="any checkout"
    echo "$place $1 $(cat "$ROOT/pyproject.toml" "$ROOT/src/tinsmith/_version.py" "$ROOT/scripts/_setup.sh" | cksum)"
}

set_up() {
    if [ -n "${NO_VENV:-}" ]; then
        find_python
        VENV_PYTHON=$BASE_PYTHON
        export PYTHONPATH="$ROOT/src${PYTHONPATH:+:$PYTHONPATH}"
        return
    fi
    shut_out
    VENV_PYTHON=$VENV/bin/python
    if fits "$VENV_PYTHON" && { stamped "$1" || stamped dev; }; then # dev contains every other
        return
    fi
    echo "Setting up $VENV (once; a few minutes)"
    make_venv
    install "$1" || fail "the installation failed; the lines above say why"
    fingerprint "$1" >"$VENV/.tinsmith-${1:-plain}"
}

set_up_kept() {
    [ -z "${NO_VENV:-}" ] || fail "NO_VENV=1 means that nothing is installed; other versions of torch must be"
    find_python
    TORCH=$1
    PYTHON=$BASE_PYTHON
    VENV=$ENVIRONMENTS/python-$(version_of "$BASE_PYTHON")-torch-$1${3:+-$3}
    mkdir -p "$ENVIRONMENTS"
    exec 9>"$VENV.lock"  # another checkout may be setting it up
    if command -v flock >/dev/null; then flock 9; fi
    set_up "$2"
    exec 9>&-
    export PYTHONPATH=$ROOT/src
}

version_of() {
    "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'
}

# Another environment's paths and pip's settings for it must not leak into ours.
shut_out() {
    unset PYTHONPATH PYTHONHOME PIP_TARGET PIP_PREFIX
    export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
}

stamped() {
    [ "$(cat "$VENV/.tinsmith-${1:-plain}" 2>/dev/null)" = "$(fingerprint "$1")" ]
}

make_venv() {
    if fits "$VENV_PYTHON" && "$VENV_PYTHON" -m pip --version >/dev/null 2>&1; then
        return
    fi
    find_python
    if "$BASE_PYTHON" -m venv --clear "$VENV" >/dev/null 2>&1; then
        return
    fi
    # Debian's Python comes without ensurepip: lend the new environment the machine's pip to fetch its own.
    "$BASE_PYTHON" -m venv --clear --without-pip "$VENV" || fail "$BASE_PYTHON cannot make a virtual environment"
    local machine_pip
    machine_pip=$("$BASE_PYTHON" -c 'import os, pip; print(os.path.dirname(os.path.dirname(pip.__file__)))' 2>/dev/null) ||
        fail "$BASE_PYTHON has neither pip nor ensurepip; install one (Debian and Ubuntu: apt install python3-venv)"
    PYTHONPATH=$machine_pip "$VENV_PYTHON" -m pip install -qq --ignore-installed pip ||
        fail "pip could not be installed in $VENV; the lines above say why"
}

install() {
    # -qq: errors only
    local constraints=$VENV/torch-constraint.txt
    if ! torch_here >"$constraints"; then
        "$VENV_PYTHON" -m pip install -qq "torch==$TORCH" || return 1
        torch_here >"$constraints"
    fi
    # Without the constraint pip may answer some package's wish with another torch, gigabytes of it.
    "$VENV_PYTHON" -m pip install -qq --constraint "$constraints" --editable "$ROOT${1:+[$1]}"
}

torch_here() {
    "$VENV_PYTHON" -c 'from importlib.metadata import version; print("torch==" + version("torch"))' 2>/dev/null
}
