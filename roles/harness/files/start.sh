# GUEST: starts the session unless it runs. `sh -s -- yes|no`, where the word says whether only to predict.
set -eu

main() {
    check=$1
    if systemctl is-active --quiet lab-harness.service; then return; fi
    echo "changed: lab-harness.service is started"
    [ "$check" = no ] || return 0
    systemctl reset-failed lab-harness.service 2>/dev/null || true
    systemctl daemon-reload   # once more: an installation that was interrupted may have missed it
    systemctl start lab-harness.service && return
    echo "harness: lab-harness.service does not start: $(tail -n 1 /var/log/lab-harness.log)" >&2
    exit 1
}

main "$@" </dev/null
