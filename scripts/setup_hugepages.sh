#!/usr/bin/env bash
# Reserve 1 GiB hugepages for Tenstorrent cards, persistently. Shows what it would do; --apply does it.
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: setup_hugepages.sh [GB] [--apply] [--cmdline] [--node N] [--undo] [--root DIR]

  GB          pages of 1 GiB in total. Default: 1 for each Grayskull, 4 for each Wormhole or
              Blackhole found, 4 if none is found.
  --apply     do it (as root). Without it nothing is changed: --dry-run is the default.
  --cmdline   reserve on the kernel command line (GRUB): needs a reboot, never fails for lack of
              contiguous memory. Default: a systemd unit that reserves early at each boot.
  --node N    take the pages from NUMA node N (systemd way only).
  --undo      remove what this script wrote.
  --root DIR  work below DIR instead of / (for tests); runs no system command.

The user-mode driver wants pages of 1 GiB, mounted at /dev/hugepages-1G. Pages of 2 MiB, which
older guides set (vm.nr_hugepages), do not count and only lock memory away.
TEXT
}

die() {
  echo "setup_hugepages: $*" >&2
  exit 2
}

# Paths that are written, below $root.
# tt-system-tools has a tenstorrent-hugepages.service of its own; ours must not replace it.
unit_name="temper-hugepages.service"
mount_name='dev-hugepages\x2d1G.mount'
grub_name="90-tenstorrent-hugepages.cfg"

pages="" apply=0 way="systemd" node="" root="" undo=0
while (($#)); do
  case "$1" in
    -h | --help) usage; exit 0 ;;
    --apply) apply=1 ;;
    --dry-run) apply=0 ;;
    --cmdline) way="cmdline" ;;
    --undo) undo=1 ;;
    --node)
      [[ $# -ge 2 && $2 =~ ^[0-9]{1,3}$ ]] || die "--node needs a number"
      node=$2; shift ;;
    --root)
      [[ $# -ge 2 && -d $2 ]] || die "--root needs an existing directory"
      root=${2%/}; shift ;;
    -*) die "unknown option $1 (see --help)" ;;
    *)
      [[ -z $pages ]] || die "give one number of pages, not '$pages' and '$1'"
      [[ $1 =~ ^[0-9]+$ ]] || die "'$1' is not a whole number of GB (16, not 16G)"
      pages=$1 ;;
  esac
  shift
done
[[ -z $node || $way == systemd ]] || die "--node works with the systemd way only"

count_cards() { # pages that the cards found want
  local total=0 vendor device
  for vendor in "$root"/sys/bus/pci/devices/*/vendor; do
    [[ -r $vendor && $(<"$vendor") == 0x1e52 ]] || continue
    device=$(<"${vendor%/vendor}/device")
    if [[ $device == 0xfaca ]]; then total=$((total + 1)); else total=$((total + 4)); fi
  done
  echo "$total"
}

read_kb() { # field of /proc/meminfo in kB
  awk -v name="$1:" '$1 == name { print $2 }' "$root/proc/meminfo" 2>/dev/null || true
}

wanted=$(count_cards)
if [[ -z $pages ]]; then
  pages=$((wanted > 0 ? wanted : 4))
fi
# Ten digits are enough for any machine and keep the arithmetic from overflowing.
[[ ${#pages} -le 10 ]] || die "$pages pages of 1 GiB is nonsense"
pages=$((10#$pages))
((undo || pages > 0)) || die "0 pages: use --undo to remove the reservation"
total_kb=$(read_kb MemTotal)
[[ -z $total_kb || $total_kb =~ ^[0-9]+$ ]] || total_kb=""
if [[ -n $total_kb ]] && ((!undo)); then
  gib=$((total_kb / 1048576))
  # Half of memory must stay for the system and the models.
  ((pages * 2 <= gib)) || die "$pages GiB is more than half of this machine's $gib GiB"
fi
if [[ -n $node && ! -d $root/sys/devices/system/node/node$node ]]; then
  die "there is no NUMA node $node"
fi

cpu_has_1g() { grep -qw pdpe1gb "$root/proc/cpuinfo" 2>/dev/null; }
if [[ -r $root/proc/cpuinfo ]] && grep -q '^flags' "$root/proc/cpuinfo" && ! cpu_has_1g; then
  die "this processor (or virtual machine) has no 1 GiB pages (flag pdpe1gb)"
fi

unit="$root/etc/systemd/system/$unit_name"
mount="$root/etc/systemd/system/$mount_name"
grub="$root/etc/default/grub.d/$grub_name"
target="/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
[[ -z $node ]] || target="/sys/devices/system/node/node$node/hugepages/hugepages-1048576kB/nr_hugepages"

mark="# written by setup_hugepages.sh"
mount_text="$mark
[Unit]
Description=1 GiB hugepages for Tenstorrent cards
DefaultDependencies=no
Before=sysinit.target
ConditionPathExists=/sys/kernel/mm/hugepages/hugepages-1048576kB

[Mount]
What=hugetlbfs
Where=/dev/hugepages-1G
Type=hugetlbfs
Options=pagesize=1G,mode=0777

[Install]
WantedBy=sysinit.target
"
unit_text="$mark
[Unit]
Description=Reserve $pages hugepages of 1 GiB for Tenstorrent cards
DefaultDependencies=no
Before=sysinit.target $mount_name
ConditionPathExists=$target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'echo $pages > $target'

[Install]
WantedBy=sysinit.target
"
grub_text="$mark
GRUB_CMDLINE_LINUX_DEFAULT=\"\$GRUB_CMDLINE_LINUX_DEFAULT hugepagesz=1G hugepages=$pages\"
"

say() { if ((apply)); then echo "$*"; else echo "would $*"; fi; }

write() { # path, text: beside, then renamed
  say "write ${1#"$root"}"
  if ((apply)); then
    mkdir -p "$(dirname "$1")"
    printf '%s' "$2" >"$1.part"
    chmod 0644 "$1.part"
    mv -f "$1.part" "$1"
  else
    sed 's/^/    | /' <<<"${2%$'\n'}"
  fi
}

ours() { [[ -e $1 ]] && grep -qxF "$mark" "$1"; }

remove() { # only what this script wrote
  ours "$1" || return 0
  say "remove ${1#"$root"}"
  if ((apply)); then rm -f "$1"; fi
}

run() { # a system command; never below a --root
  if [[ -n $root ]]; then
    say "run (skipped below --root): $*"
    return 0
  fi
  say "run $*"
  if ((apply)); then "$@"; fi
}

update_grub() {
  if [[ -n $root ]] || command -v update-grub >/dev/null; then
    run update-grub
  else
    echo "No update-grub here: rebuild the boot configuration (grub2-mkconfig -o ...) by hand."
  fi
}

((!apply)) || [[ -n $root || $(id -u) -eq 0 ]] || die "--apply needs root: sudo $0 ..."

if ((undo)); then
  had_grub=0
  if ours "$grub"; then had_grub=1; fi
  if ours "$unit"; then run systemctl disable "$unit_name"; fi
  if ours "$mount"; then run systemctl disable "$mount_name"; fi
  remove "$unit"
  remove "$mount"
  remove "$grub"
  run systemctl daemon-reload
  if ((had_grub)); then update_grub; fi
  echo "Pages come back at the next boot."
  exit 0
fi

echo "Reserving $pages hugepages of 1 GiB ($way); cards found want $wanted."
small=$(cat "$root/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages" 2>/dev/null || echo 0)
if [[ $small =~ ^[0-9]+$ ]] && ((small > 0)); then
  echo "Note: $small pages of 2 MiB are reserved too; the card cannot use them."
  echo "      Give them back with: sudo sysctl vm.nr_hugepages=0 (and remove it from sysctl.conf)"
fi
if ((pages < wanted)); then
  echo "Note: fewer than the $wanted that the cards want; programs may fail for lack of channels."
fi

theirs=""
for place in etc lib usr/lib; do
  file="$root/$place/systemd/system/$mount_name"
  if [[ -e $file ]] && ! ours "$file"; then theirs=${file#"$root"}; fi
done
if [[ -n $theirs ]]; then
  echo "Keeping the mount unit that is there: $theirs"
else
  write "$mount" "$mount_text"
fi
if [[ $way == systemd ]]; then
  remove "$grub"
  write "$unit" "$unit_text"
  run systemctl daemon-reload
  run systemctl enable --now "$unit_name"
  run systemctl enable --now "$mount_name"
  if ((apply)) && [[ -z $root ]]; then
    got=$(cat "$target")
    if ((got < pages)); then
      echo "Only $got of $pages pages could be found now: memory is fragmented."
      echo "Reboot (the unit runs early), or use --cmdline."
      exit 1
    fi
    echo "$got pages reserved. Check: temper doctor"
  fi
else
  remove "$unit"
  write "$grub" "$grub_text"
  run systemctl daemon-reload
  run systemctl enable "$mount_name"
  update_grub
  echo "Takes effect after a reboot. Without GRUB add to the kernel command line:"
  echo "    hugepagesz=1G hugepages=$pages"
fi
((apply)) || echo "Nothing was changed. Run again with --apply to do this."
