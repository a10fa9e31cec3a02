# GUEST: the sandbox's tree with its owners and modes. Runs as root; `sh -s -- SANDBOX USER yes|no`, where the
# last word says whether only to predict. Prints one line starting with "changed" per change.
set -eu

# folder PATH OWNER MODE: only the folder itself; what is in it stays as it is.
folder() {
    [ "$(stat -c '%F %U %a' "$1" 2>/dev/null)" = "directory $2 $3" ] && return
    echo "changed: $1"
    [ "$check" = yes ] || install -d -o "$2" -g "$(group_of "$2")" -m "$3" "$1"
}

group_of() {
    id -gn "$1"
}

main() {
    sandbox=$1 user=$2 check=$3
    folder "$sandbox" root 755
    folder "$sandbox/workspace" "$user" 755
    folder "$sandbox/workspace/notes" "$user" 755
    folder "$sandbox/workspace/scripts" "$user" 755
    folder "$sandbox/workspace/tools" "$user" 755
    folder "$sandbox/tmp" root 1777
    folder "$sandbox/trash" root 1777
}

main "$@" </dev/null   # the shell reads this script from its standard input: nothing else may
