# GUEST: the Worker's account and everything that would make its commands wait or ask. Runs as root;
# `sh -s -- USER HOSTNAME TMPDIR CA_FILE yes|no UNIT...`, where yes|no says whether only to predict.
# Prints one line starting with "changed" per change.
set -eu

fail() {
    printf 'users: %s\n' "$1" >&2
    exit 1
}

predict_or() {
    echo "changed: $1"
    shift
    [ "$check" = yes ] || "$@"
}

# put FILE MODE: makes standard input the content of FILE, at once and only if it differs.
put() {
    content=$(cat)
    if [ "$(cat "$1" 2>/dev/null)" = "$content" ] && [ "$(stat -c %a "$1")" = "$2" ]; then return; fi
    predict_or "$1" write_file "$1" "$2"
}

write_file() {
    mkdir -p "${1%/*}"
    (umask 077 && printf '%s\n' "$content" >"$1.lab-new")
    case $1 in
        /etc/sudoers.d/*) visudo -q -c -f "$1.lab-new" >/dev/null || fail "visudo finds a fault in $1" ;;
    esac
    chmod "$2" "$1.lab-new"
    mv -f "$1.lab-new" "$1"   # sudo ignores names with a dot, so the new file counts only from here on
}

account() {
    entry=$(getent passwd "$user" || true)
    if [ -z "$entry" ]; then
        predict_or "account $user" useradd --create-home --user-group --shell /bin/bash "$user"
        [ "$check" = no ] || return 0
        entry=$(getent passwd "$user")
    fi
    [ "${entry##*:}" = /bin/bash ] || predict_or "shell of $user" usermod --shell /bin/bash "$user"
    case $(getent shadow "$user" | cut -d: -f2) in
        '!'* | '*'*) ;;
        *) predict_or "password of $user is locked" usermod --lock "$user" ;;
    esac
}

# sudo: no password, no lecture, no log lines, and the two things that commands need: TMPDIR and no questions.
# TMPDIR must be set anew: the C library takes it from every setuid program, so that env_keep cannot keep it.
sudo_rights() {
    put /etc/lab/sudo-environment 644 <<END
TMPDIR=$tmpdir
DEBIAN_FRONTEND=noninteractive
NEEDRESTART_MODE=l
APT_LISTCHANGES_FRONTEND=none
END
    put "/etc/sudoers.d/lab-$user" 440 <<END
$user ALL=(ALL:ALL) NOPASSWD: ALL
Defaults:$user lecture=never, !syslog, !mail_badpass
Defaults:$user env_keep += "DEBIAN_FRONTEND NEEDRESTART_MODE"
Defaults:$user env_file = /etc/lab/sudo-environment
END
}

# Nothing asks, nothing competes for the lock, and who finds it taken waits.
apt_never_asks() {
    put /etc/apt/apt.conf.d/90lab 644 <<'END'
DPkg::Lock::Timeout "300";
DPkg::Options { "--force-confdef"; "--force-confold"; };
APT::Periodic::Enable "0";
Acquire::Languages "none";
END
    put /etc/needrestart/conf.d/90-lab.conf 644 <<'END'
$nrconf{restart} = 'l';
$nrconf{kernelhints} = -1;
$nrconf{ucodehints} = 0;
END
    # Also for root, cron and whoever has no DEBIAN_FRONTEND. Read from the database: debconf-show takes seconds here.
    if ! awk -v RS= '/^Name: debconf\/frontend\n/ && /\nValue: Noninteractive/ { found = 1 } END { exit !found }' \
            /var/cache/debconf/config.dat 2>/dev/null; then
        predict_or "debconf asks nothing" silence_debconf
    fi
}

silence_debconf() {
    echo 'debconf debconf/frontend select Noninteractive' | debconf-set-selections
}

# A link to /dev/null masks a unit, running systemd or not, also one that a later package brings.
mask_units() {
    masked=''
    for unit do
        [ "$(readlink "/etc/systemd/system/$unit" || true)" = /dev/null ] && continue
        predict_or "$unit is masked" ln -sfn /dev/null "/etc/systemd/system/$unit"
        masked="$masked $unit"
    done
    [ -n "$masked" ] && [ "$check" = no ] && [ -d /run/systemd/system ] || return 0
    systemctl daemon-reload
    systemctl stop $masked 2>/dev/null || true   # some do not exist here
}

# Without this every sudo asks the name server for the guest's own name, and waits if none answers.
own_name() {
    name=${hostname:-$(hostname)}
    grep -qsE "^[^#]*[[:space:]]$name([[:space:]]|\$)" /etc/hosts || predict_or "$name in /etc/hosts" add_name
}

add_name() {
    printf '127.0.1.1 %s\n' "$name" >>/etc/hosts
}

# Installs those certificates of the bundle that the guest does not trust yet, one file each as c_rehash wants them.
trust() {
    [ -n "$ca_file" ] || return 0
    if [ ! -e "$ca_file" ]; then predict_or "certificates of the host" fail "$ca_file is missing"; return; fi
    folder=/usr/local/share/ca-certificates/lab-host
    new=$(missing_certificates -v folder=)   # 1, 2, 3, ...: a line each
    [ -z "$new" ] || predict_or "$(echo "$new" | wc -l) certificates of the host" add_certificates
}

# Prints a line for each certificate of $ca_file that is not in the system's bundle; writes it where a folder is given.
missing_certificates() {
    awk "$@" '
        /-----BEGIN CERTIFICATE-----/ { body = ""; text = $0; inside = 1; next }
        inside { text = text "\n" $0 }
        /-----END CERTIFICATE-----/ {
            inside = 0
            if (FILENAME != ARGV[ARGC - 1]) known[body] = 1
            else if (!(body in known)) {
                known[body] = 1; print ++count
                if (folder) print text > (folder "/" sprintf("%03d", there + count) ".crt")
            }
        }
        inside { sub(/\r$/, ""); body = body $0 }
    ' $(ls /etc/ssl/certs/ca-certificates.crt 2>/dev/null) "$ca_file"
}

add_certificates() {
    mkdir -p "$folder"
    missing_certificates -v folder="$folder" -v there="$(ls "$folder" | wc -l)" >/dev/null
    update-ca-certificates >/dev/null 2>&1 || fail "update-ca-certificates fails on the certificates in $folder"
}

main() {
    user=$1 hostname=$2 tmpdir=$3 ca_file=$4 check=$5
    shift 5
    account
    sudo_rights
    apt_never_asks
    mask_units "$@"
    own_name
    trust
}

main "$@" </dev/null   # the shell reads this script from its standard input: nothing else may
