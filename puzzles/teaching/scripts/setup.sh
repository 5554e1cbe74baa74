#!/usr/bin/env bash
# Prepares the image of the autograder. It runs once, as root, when the file is uploaded; after that nothing needs the
# network. With OFFLINE=yes not even this does, if the image has Python 3.11 or newer.
set -euo pipefail
OFFLINE=no
PACKAGES=()
root="${AUTOGRADER_ROOT:-/autograder}"
source="$root/source"

usable() { # a Python of a supported version that can make virtual environments
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

find_python() {
    for python in "${AUTOGRADER_PYTHON:-python3.14}" python3.14 python3.13 python3.12 python3.11 python3; do
        if usable "$python"; then return 0; fi
    done
    return 1
}

if [ "$OFFLINE" = no ] && command -v apt-get >/dev/null 2>&1; then
    apt-get update || true
    find_python || apt-get install -y python3.12 python3.12-venv || apt-get install -y python3.11 python3.11-venv ||
        apt-get install -y python3 python3-venv # newer images have a newer one, and no other
fi
if ! find_python; then
    echo "There is no Python 3.11 or newer with venv in this image; choose a newer base image." >&2
    exit 1
fi

"$python" -m venv "$root/venv"
index=()
if [ "$OFFLINE" = yes ]; then index=(--no-index --find-links "$source/wheels"); fi
"$root/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${index[@]}" "$source"/wheels/training_puzzles-*.whl "${PACKAGES[@]}"
chmod -R go-rwx "$source" # references and trials are there
"$root/venv/bin/puzzles" doctor
