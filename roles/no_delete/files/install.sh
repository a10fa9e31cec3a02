# GUEST: puts the wrapper in front of rm, unlink and shred and tells dpkg so. Runs as root; `sh -s -- WRAPPER yes|no`,
# where the second word says whether only to predict. Prints one line starting with "changed" per change.
set -eu

fail() {
    printf 'no_delete: %s\n' "$1" >&2
    exit 1
}

is_wrapper() {
    head -n 3 "$1" 2>/dev/null | grep -qa 'lab-no-delete wrapper'
}

# The path by which dpkg knows program $1. Diverting any other one is undone by the next coreutils install.
owned_path() {
    for candidate in "/bin/$1" "/usr/bin/$1"; do
        owned=$(dpkg-query -S "$candidate" 2>/dev/null | sed -n 's/^[^ ]*: //p' | head -n 1)
        if [ -n "$owned" ]; then echo "$owned"; return; fi
    done
    fail "no package owns $1 in /bin or /usr/bin; this guest is neither Debian nor Ubuntu with GNU coreutils"
}

render() {
    sed -e "s|@program@|$program|" -e "s|@real@|$real|" "$wrapper"
}

predict_or() {
    echo "changed: $path $1"
    shift
    [ "$check" = yes ] || "$@"
}

# Each file is complete before it gets its name: there is never a moment without rm.
keep_real() {
    cp -p "$path" "$real.lab-new"
    mv -f "$real.lab-new" "$real"
}

place_wrapper() {
    render >"$path.lab-new"
    chmod 0755 "$path.lab-new"
    mv -f "$path.lab-new" "$path"
}

divert() {
    dpkg-divert --quiet --local --no-rename --divert "$real" --add "$path"
}

is_diverted() {
    [ "$(dpkg-divert --listpackage "$path")" = LOCAL ]
}

guard() {
    program=$1 path=$(owned_path "$1") real=$path.distrib
    if ! is_wrapper "$path" && { ! is_diverted || [ ! -x "$real" ]; }; then
        predict_or "is kept as $real" keep_real
    fi
    if [ "$check" = no ] && { [ ! -x "$real" ] || is_wrapper "$real"; }; then
        fail "$real is not the real $program; \`apt-get install --reinstall coreutils\` puts it back"
    fi
    if [ ! -e "$wrapper" ] || ! render | cmp -s - "$path"; then
        predict_or "is the wrapper" place_wrapper
    fi
    is_diverted || predict_or "is diverted to $real" divert
}

main() {
    wrapper=$1 check=$2
    for program in rm unlink shred; do
        guard "$program"
    done
}

main "$@" </dev/null   # the shell reads this script from its standard input: nothing else may
