# GUEST: unpacks the harness's archive and installs its unit. Runs as root;
# `sh -s -- ARCHIVE SANDBOX PYTHON yes|no`, where the last word says whether only to predict.
# Prints one line starting with "changed" per change.
set -eu

TARGET=/opt/lab-harness
UNIT=/etc/systemd/system/lab-harness.service

fail() {
    printf 'harness: %s\n' "$1" >&2
    exit 1
}

predict_or() {
    echo "changed: $1"
    shift
    [ "$check" = yes ] || "$@"
}

unit_text() {
    cat <<END
[Unit]
Description=The lab's orchestrator
RequiresMountsFor=$sandbox/telemetry

[Service]
Type=exec
WorkingDirectory=$TARGET
Environment=PYTHONPATH=$TARGET:$TARGET/site-packages PYTHONUNBUFFERED=1
ExecStart=$python -m harness /etc/lab-harness/run.json
StandardInput=null
StandardOutput=append:/var/log/lab-harness.log
StandardError=inherit
# Each step of the Worker gets a cgroup of its own below this unit's.
Slice=lab.slice
Delegate=yes
Restart=no
KillMode=mixed
TimeoutStopSec=60
# What the Worker starts may run out of memory; the orchestrator must outlive it.
OOMPolicy=continue
OOMScoreAdjust=-900
END
}

# Two names change within a moment: who looks finds the old tree, or the new one, or none, never a mixture.
unpack() {
    real_rm -rf "$TARGET.new" "$TARGET.old"
    install -d -m 0755 "$TARGET.new"
    tar -xzf "$archive" -C "$TARGET.new" --no-same-owner || fail "$archive cannot be unpacked; is the disk full?"
    [ -f "$TARGET.new/harness/__main__.py" ] || fail "there is no harness/__main__.py in $archive"
    sha256sum <"$archive" >"$TARGET.new/.archive-sha256"
    [ ! -e "$TARGET" ] || mv -T "$TARGET" "$TARGET.old"
    mv -T "$TARGET.new" "$TARGET"
    real_rm -rf "$TARGET.old"
}

# rm itself is a wrapper in the guest.
real_rm() {
    if [ -x /bin/rm.distrib ]; then /bin/rm.distrib "$@"; else /bin/rm "$@"; fi
}

write_unit() {
    unit_text >"$UNIT.lab-new"
    mv -f "$UNIT.lab-new" "$UNIT"
    systemctl daemon-reload
}

is_current() {
    # In a first --check the archive is only predicted to be here.
    [ -e "$archive" ] && [ "$(cat "$TARGET/.archive-sha256" 2>/dev/null)" = "$(sha256sum <"$archive")" ]
}

program() {
    if is_current; then return; fi
    if systemctl is-active --quiet lab-harness.service; then
        fail "a session is running in this guest with another harness; \`lab finish\` ends it"
    fi
    predict_or "the program in $TARGET" unpack
}

main() {
    archive=$1 sandbox=$2 python=$3 check=$4
    program
    [ "$(stat -c '%U %a' /etc/lab-harness 2>/dev/null)" = 'root 700' ] \
        || predict_or /etc/lab-harness install -d -o root -g root -m 0700 /etc/lab-harness
    [ -e /var/log/lab-harness.log ] \
        || predict_or /var/log/lab-harness.log install -m 0600 /dev/null /var/log/lab-harness.log
    [ "$(cat "$UNIT" 2>/dev/null)" = "$(unit_text)" ] || predict_or "$UNIT" write_unit
}

main "$@" </dev/null   # the shell reads this script from its standard input: nothing else may
