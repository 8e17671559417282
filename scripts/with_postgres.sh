#!/usr/bin/env bash
# Run a command against a PostgreSQL server that exists only for it.
# Usage: with_postgres.sh COMMAND...    or    with_postgres.sh --check
# The command sees TEST_DATABASE_URL. One that is already set is used as it is.
# --check only says (by its exit status) whether a server can be started here.
set -euo pipefail

if [[ -n "${TEST_DATABASE_URL:-}" ]]; then
    [[ "${1:-}" == --check ]] && exit 0
    exec "$@"
fi

find_bin() {
    local folder
    for folder in $(ls -d /usr/lib/postgresql/*/bin /opt/homebrew/opt/postgresql*/bin 2>/dev/null | sort -V -r); do
        [[ -x "$folder/initdb" ]] && { echo "$folder"; return; }
    done
    command -v initdb >/dev/null && dirname "$(command -v initdb)"
}

bin=$(find_bin) || { echo "PostgreSQL is not installed (Debian/Ubuntu: apt install postgresql)." >&2; exit 69; }
work=$(mktemp -d)
as_owner=()
if [[ $(id -u) -eq 0 ]]; then  # the server refuses to run as root
    as_owner=(runuser -u postgres --)
    chown postgres "$work"
fi

stop() {
    "${as_owner[@]}" "$bin/pg_ctl" -D "$work/data" -m immediate stop >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cd_work() { (cd "$work" && "$@"); }
cd_work "${as_owner[@]}" "$bin/initdb" -D "$work/data" -A trust -U planner -E UTF8 --no-sync >"$work.log" 2>&1 &&
    cd_work "${as_owner[@]}" "$bin/pg_ctl" -D "$work/data" -w -l "$work/data/server.log" \
        -o "-p $port -k $work -c listen_addresses=127.0.0.1 -c fsync=off" start >>"$work.log" 2>&1 ||
    { cat "$work.log" >&2; rm -f "$work.log"; echo "The PostgreSQL server did not start." >&2; exit 69; }
rm -f "$work.log"
[[ "${1:-}" == --check ]] && exit 0

cd_work "${as_owner[@]}" "$bin/createdb" -h 127.0.0.1 -p "$port" -U planner planner_test
TEST_DATABASE_URL="postgresql+psycopg://planner@127.0.0.1:$port/planner_test" "$@"
