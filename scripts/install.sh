#!/bin/sh
# install.sh PACKAGE ...: installs Debian packages, as root, without letting their servers run: neither now, where they
# would disturb every measurement, nor after a reboot, where nobody asked for them.
set -eu
export DEBIAN_FRONTEND=noninteractive
root=${INSTALL_ROOT:-} # for a test

# Our file is marked: one that we could not remove (SIGKILL, power cut) is removed at the next start, and a file of
# somebody else stays.
policy=$root/usr/sbin/policy-rc.d
mark="# taillab setup: removed at the end of the installation"
remove() { if grep -qsxF "$mark" "$policy"; then rm -f "$policy"; fi; }
remove
if [ ! -e "$policy" ]; then
  trap remove EXIT
  trap "exit 1" HUP INT TERM
  printf '#!/bin/sh\n%s\nexit 101\n' "$mark" >"$policy"
  chmod 755 "$policy"
fi

# what systemd starts at boot, by its files alone: it need not run, as in a container
at_boot() {
  command -v systemctl >/dev/null || return 0
  systemctl --root="$root/" list-unit-files --type=service,socket --state=enabled --no-legend 2>/dev/null |
    while read -r unit _; do echo "$unit"; done
}

before=$(at_boot)
apt-get update -qq
apt-get install -y -qq --no-install-recommends "$@"
new=
for unit in $(at_boot); do
  echo "$before" | grep -qxF "$unit" || new="$new $unit"
done
if [ -n "$new" ]; then
  # shellcheck disable=SC2086 # a list of names
  systemctl --root="$root/" disable $new >/dev/null 2>&1 ||
    { echo "error: could not disable$new: they start at the next boot; systemctl disable$new" >&2; exit 1; }
  echo "disabled at boot, since only measurements start them:$new (systemctl enable undoes that)" >&2
fi
