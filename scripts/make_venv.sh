#!/bin/sh
# Make a virtual environment with the first Python 3.11 or newer on this machine.
# Usage: make_venv.sh FOLDER      (PYTHON=/path/to/python picks one)
set -eu
folder=$1

fits() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
    if fits "$candidate"; then python=$candidate; break; fi
done

if [ -z "$python" ]; then
    found=$(python3 --version 2>/dev/null || echo "no python3")
    echo "Python 3.11 or newer is needed; found: ${PYTHON:-$found}." >&2
    echo "Install it (Debian/Ubuntu: apt install python3 python3-venv; macOS: brew install python)" >&2
    echo "or name one: make setup PYTHON=/path/to/python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
    echo "$python has no venv module (Debian/Ubuntu: apt install python3-venv)." >&2
    exit 1
fi
echo "Making $folder with $("$python" --version)"
"$python" -m venv "$folder"
