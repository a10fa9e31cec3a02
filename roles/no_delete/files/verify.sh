# GUEST: runs as the Worker, tries to delete, and says in a sentence what was lost. `sh -s -- SANDBOX TRASH`.
set -u

sandbox=$1 trash=$2
tag=no-delete-verify-$$
outside=/tmp/$tag
tools=$sandbox/workspace/tools/$tag

fail() {
    printf 'no_delete: %s\n' "$1" >&2
    clean_up
    exit 1
}

# What this script made goes away by the real rm, the trash it filled included.
clean_up() {
    sudo -n /bin/rm.distrib -rf "$outside" "$tools" "$sandbox/workspace/notes/$tag.md" \
        "$sandbox/workspace/scripts/$tag.py" "$outside-link" $(trash_since)
}

trash_since() {
    find "$trash" -mindepth 1 -maxdepth 1 -newer "$outside/start" 2>/dev/null
}

must_refuse() {
    kept=$1
    shift
    said=$("$@" 2>&1) && fail "\`$*\` succeeded"
    [ -e "$kept" ] || fail "\`$*\` deleted $kept"
    case $said in *'refused'*) ;; *) fail "\`$*\` was not refused but said: $said" ;; esac
}

refuses_below_the_sandbox() {
    note=$sandbox/workspace/notes/$tag.md script=$sandbox/workspace/scripts/$tag.py
    touch "$note" "$script"
    ln -s "$sandbox/workspace/notes" "$outside-link"
    must_refuse "$note" rm "$note"
    must_refuse "$note" rm -rf "$outside-link/$tag.md"
    must_refuse "$note" sudo -n rm "$note"
    # Only now, and without --no-preserve-root: a wrapper that fails must not cost the guest.
    must_refuse "$note" sudo -n rm -rf "$sandbox/workspace/notes"
    must_refuse "$note" sudo -n rm -rf /
    must_refuse "$script" unlink "$script"
    must_refuse "$script" sudo -n shred -u "$script"
    said=$(rm "$script" 2>&1)
    case $said in *"$tag"_v2.py) ;; *) fail "the refusal names no next version: $said" ;; esac
}

moves_to_the_trash_below_tools() {
    mkdir -p "$tools/obj" && cd "$tools" || fail "tools/ cannot be written"
    touch conftest.c conftest.o obj/main.o
    rm -f conftest* no-such-file || fail "\`rm -f conftest*\` fails below tools/"
    rm -r obj || fail "\`rm -r obj\` fails below tools/"
    [ ! -e conftest.c ] && [ ! -e obj ] || fail "rm below tools/ left the files where they were"
    for name in conftest.c conftest.o obj; do
        [ -n "$(find $(trash_since) -name "$name" 2>/dev/null)" ] || fail "$name did not reach the trash"
    done
    cd /
}

deletes_outside() {
    touch "$outside/a" "$outside/b" "$outside/c"
    rm "$outside/a" && unlink "$outside/b" && shred -u "$outside/c" || fail "a removal in /tmp fails"
    [ "$(ls "$outside")" = start ] || fail "rm, unlink or shred left a file in /tmp"
}

leaves_dpkg_alone() {
    for program in rm unlink shred; do
        [ -n "$(dpkg-divert --list "*/$program")" ] || fail "$program is not diverted: installing coreutils ends it"
    done
    [ -z "$(dpkg --audit)" ] || fail "dpkg finds broken packages: $(dpkg --audit | head -n 1)"
}

main() {
    cd / && mkdir "$outside" && touch "$outside/start" && sleep 0.1
    refuses_below_the_sandbox
    moves_to_the_trash_below_tools
    deletes_outside
    leaves_dpkg_alone
    clean_up
    echo "rm, unlink and shred refuse below $sandbox, keep what goes in tools/, and delete elsewhere"
}

main </dev/null
