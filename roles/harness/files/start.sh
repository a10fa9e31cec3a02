# GUEST: starts the session unless it runs. `sh -s -- SANDBOX PYTHON RUN_ID yes|no`, where the last word says
# whether only to predict.
set -eu

# Prints the run that a database records, if it records one.
run_in() {
    "$python" -c '
import sqlite3, sys
try:
    database = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    print(*database.execute("SELECT value FROM session_state WHERE key = ?", ("run_id",)).fetchone() or ())
except sqlite3.Error:
    print("unreadable")
' "$1"
}

# In a guest that was kept, the record of an earlier run goes aside: one database holds one run.
put_aside() {
    for folder in "$sandbox/telemetry" "$sandbox/mirror"; do
        [ -e "$folder/run.db" ] || continue
        earlier=$(run_in "$folder/run.db")
        [ "$earlier" != "$run_id" ] || continue
        aside=$folder/earlier/${earlier:-unnamed}
        mkdir -p "$aside"
        find "$folder" -mindepth 1 -maxdepth 1 ! -name earlier ! -name lost+found -exec mv -f -t "$aside" {} +
    done
}

main() {
    sandbox=$1 python=$2 run_id=$3 check=$4
    if systemctl is-active --quiet lab-harness.service; then return; fi
    echo "changed: lab-harness.service is started"
    [ "$check" = no ] || return 0
    put_aside
    systemctl reset-failed lab-harness.service 2>/dev/null || true
    systemctl daemon-reload   # once more: an installation that was interrupted may have missed it
    systemctl start lab-harness.service && return
    echo "harness: lab-harness.service does not start: $(tail -n 1 /var/log/lab-harness.log)" >&2
    exit 1
}

main "$@" </dev/null
