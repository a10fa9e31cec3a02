# GUEST: runs as the Worker: writes where it may, tries where it may not. `sh -s -- SANDBOX`.
set -u

sandbox=$1
tag=.workspace-verify-$$

fail() {
    printf 'workspace: %s\n' "$1" >&2
    exit 1
}

may_write() {
    echo x >"$1/$tag" || fail "$(id -un) cannot write in $1"
    mv "$1/$tag" "/tmp/$tag" && rm -f "/tmp/$tag"   # out of the sandbox first: nothing is deleted there
    [ ! -e "$1/$tag" ] || fail "$1/$tag was left behind"
}

main() {
    for folder in workspace workspace/notes workspace/scripts workspace/tools tmp trash; do
        may_write "$sandbox/$folder"
    done
    if (echo x >"$sandbox/$tag") 2>/dev/null; then fail "$(id -un) can write beside the workspace in $sandbox"; fi
    if mv -T "$sandbox/trash" "$sandbox/$tag" 2>/dev/null; then fail "$(id -un) can move the kept trash away"; fi
    [ "$(stat -c %a "$sandbox/tmp" "$sandbox/trash" | sort -u)" = 1777 ] || fail "tmp or trash is not 1777"
    echo "$(id -un) writes in the workspace, tmp and trash, and nowhere else in $sandbox"
}

main </dev/null
