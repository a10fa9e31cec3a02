# GUEST: file systems of their own for telemetry, mirror and backups. Runs as root;
# `sh -s -- SANDBOX DISK MIRROR_GB TELEMETRY_GB yes|no`, where the last word says whether only to predict.
# Prints one line starting with "changed" per change. Writes to a partition only if it is empty.
set -eu

fail() {
    printf 'volumes: %s\n' "$1" >&2
    exit 1
}

predict_or() {
    echo "changed: $1"
    shift
    [ "$check" = yes ] || "$@"
}

# The device of the partition named $1 on any disk, or nothing.
partition() {
    blkid -c /dev/null -t "PARTLABEL=$1" -o device || true
}

# The data disk gets its partitions once. Whatever already holds something is somebody's.
partition_disk() {
    [ -z "$(partition lab-mirror)" ] || return 0
    device=$(readlink -f "$disk")
    [ -b "$device" ] || fail "there is no disk $disk; attach one or set volumes_disk (\`lsblk\` shows what is there)"
    holds=$(wipefs --no-act --noheadings --output TYPE "$device" | tr '\n' ' ')$(lsblk -nro NAME "$device" | sed 1d)
    [ -z "$holds" ] || fail "$disk is not empty ($holds) and was left alone; set volumes_disk to an empty disk"
    predict_or "$disk is partitioned" write_partitions
}

write_partitions() {
    {
        echo 'label: gpt'
        echo "name=lab-mirror, size=${mirror_gb}GiB"
        [ -n "$(partition lab-telemetry)" ] || echo "name=lab-telemetry, size=${telemetry_gb}GiB"
        echo 'name=lab-backups'
    } | sfdisk --quiet "$device"
    udevadm settle 2>/dev/null || true
    [ -n "$(partition lab-mirror)" ] || partx --update "$device"   # a kernel that reads no GPT is told
}

# file_system NAME BYTES_PER_INODE: ext4 with label NAME in the partition NAME.
file_system() {
    device=$(partition "$1")
    if [ -z "$device" ] && [ "$check" = yes ]; then echo "changed: $1 gets its file system"; return; fi
    [ "$(echo "$device" | wc -w)" = 1 ] || fail "there is not one partition named $1 but: ${device:-none}"
    holds=$(blkid -p -s TYPE -o value "$device" || true)/$(blkid -p -s LABEL -o value "$device" || true)
    case $holds in
        "ext4/$1") ;;
        /) predict_or "$1 gets its file system" make_file_system "$1" "$2" ;;
        *) fail "$device is named $1 but holds $holds; it was left alone" ;;
    esac
}

# The disks are new and thin, so they read as zeros: nothing has to be written in the background later, which
# would grow the disk and disturb measurements. mke2fs before 1.47 does not know that option.
make_file_system() {
    set -- "$device" -q -F -L "$1" -m 0 -i "$2" -e remount-ro
    mkfs.ext4 -E lazy_itable_init=1,lazy_journal_init=1,assume_storage_prezeroed=1 "$@" 2>/dev/null \
        || mkfs.ext4 -E lazy_itable_init=1,lazy_journal_init=1 "$@"
}

# mounted NAME FOLDER: now and after each boot; root only, below it too for the time it is not mounted.
# nofail: no boot waits for it. The time is long since udev in an emulated guest on a busy host took minutes.
mounted() {
    line="LABEL=$1 $2 ext4 noatime,nodev,nosuid,nofail,x-systemd.device-timeout=15min 0 2"
    grep -qxF "$line" /etc/fstab || predict_or "$2 in fstab" write_fstab "$2"
    mountpoint -q "$2" || predict_or "$2 is mounted" mount_now "$2"
    [ "$check" = no ] || return 0
    [ "$(findmnt -nro SOURCE "$2")" = "$(partition "$1")" ] || fail "what is mounted at $2 is not the partition $1"
    [ "$(stat -c '%U %a' "$2")" = 'root 700' ] || predict_or "$2 is root's" root_only "$2"
}

write_fstab() {
    awk -v folder="$1" '$2 != folder' /etc/fstab >/etc/fstab.lab-new
    echo "$line" >>/etc/fstab.lab-new
    chmod 0644 /etc/fstab.lab-new
    mv -f /etc/fstab.lab-new /etc/fstab
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
}

mount_now() {
    mkdir -p "$1"
    root_only "$1"
    mount "$1"
    root_only "$1"
}

root_only() {
    chown root:root "$1"
    chmod 0700 "$1"
}

main() {
    sandbox=$1 disk=$2 mirror_gb=$3 telemetry_gb=$4 check=$5
    partition_disk
    file_system lab-telemetry 65536
    file_system lab-mirror 65536
    file_system lab-backups 32768   # many small files; what is unchanged is a hard link and takes none
    for name in telemetry mirror backups; do
        mounted "lab-$name" "$sandbox/$name"
    done
}

main "$@" </dev/null   # the shell reads this script from its standard input: nothing else may
