#!/usr/bin/env bash
# vm.sh SUITE COMMAND [ARG ...]: boots Debian's kernel of SUITE (bookworm: 6.1, bookworm-backports:
# 6.12, trixie-backports: 7.x) in QEMU and runs COMMAND there as root, in this directory. Exits with
# its exit code.
#
# The guest's file system is this machine's, read-only below a tmpfs: it runs what was built here, and
# what it changes is lost, except under /out, which is .cache/vm/NAME.out here. QEMU emulates the CPUs (no KVM
# needed), about 12 times slower than real ones: test behaviour in it, not times. /out/.loop has the guest's
# speed: how often a loop of the shell ran, and the seconds since the kernel's start before and after it.
#
# VM_CPUS (4), VM_MEMORY (2048 MiB), VM_TIMEOUT (540 s; 0: none), VM_MIRROR (http://deb.debian.org/debian),
# VM_FLAVOUR (amd64; rt-amd64: PREEMPT_RT, and the osnoise tracer) and VM_NAME (the kernel's; guests of different
# names may run at the same time) may be set.
# VM_SERVER=1 gives it the hardware of a server: two NUMA nodes, idle states, frequencies (server.asl), and
# two network devices with an interrupt for each queue, connected to QEMU only.
# VM_SYSTEMD=1 boots this machine's systemd in it; the only unit that it starts is COMMAND's.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
suite=$1; shift
[[ $suite =~ ^[a-z][a-z-]*$ ]] || { echo "error: '$suite' is no Debian suite: try bookworm" >&2; exit 2; }
here=$(cd "$(dirname "$0")" && pwd)
flavour=${VM_FLAVOUR:-amd64}
[[ $flavour =~ ^[a-z][a-z0-9-]*$ ]] || { echo "error: '$flavour' is no flavour of Debian's kernel: try rt-amd64" >&2; exit 2; }
cache=$(dirname "$here")/.cache/vm
kernel=$cache/$suite
[ "$flavour" = amd64 ] || kernel+=-$flavour
name=${VM_NAME:-$(basename "$kernel")}
[[ $name =~ ^[a-z0-9][a-z0-9.-]*$ ]] || { echo "error: '$name' is no name of a guest: try stamps" >&2; exit 2; }
out=$cache/$name.out work=$cache/$name.work
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

server=${VM_SERVER:-} systemd=${VM_SYSTEMD:-}
"$here/setup.sh" vm

mkdir -p "$cache"
exec 9>"$out.lock"
flock --timeout 600 9 || { echo "error: another guest has had this name for ten minutes: wait until it ends" >&2; exit 1; }
# a run that was killed leaves it
rm -rf "$work"; mkdir "$work"
guest=
trap '[ -z "$guest" ] || kill "$guest" 2>/dev/null || true; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The kernel: a package of its own apt configuration, unpacked and never installed.
exec 8>"$kernel.lock"
flock --timeout 1800 8 || { echo "error: this kernel has been downloaded for half an hour: look at the network" >&2; exit 1; }
if [ ! -e "$kernel/initrd" ]; then
  echo "downloading Debian's kernel of $suite, $flavour (100 to 180 MB, kept in $kernel)" >&2
  rm -rf "$kernel"
  mkdir -p "$kernel" "$work/lists/partial" "$work/archives/partial"
  echo "deb [arch=amd64 signed-by=$keyring] ${VM_MIRROR:-http://deb.debian.org/debian} $suite main" >"$work/sources"
  # of this machine's configuration only how to reach the mirror is used, not its hooks and lists
  apt-config dump | grep -E '^Acquire::(https?|Check-|Retries)' >"$work/apt.conf" || true
  cat >>"$work/apt.conf" <<CONF
APT::Architecture "amd64"; APT::Sandbox::User ""; Acquire::Languages "none"; APT::Update::Error-Mode "any";
Dir::Etc::Parts "/dev/null"; Dir::Etc::Main "/dev/null"; Dir::Etc::SourceParts "/dev/null";
Dir::Etc::SourceList "$work/sources"; Dir::Etc::PreferencesParts "/dev/null"; Dir::Etc::Preferences "/dev/null";
Dir::State "$work"; Dir::State::Lists "$work/lists"; Dir::State::status "/dev/null";
Dir::Cache "$work"; Dir::Cache::archives "$work/archives";
CONF
  export APT_CONFIG=$work/apt.conf
  apt-get update -qq
  package=$(apt-cache depends --no-recommends --no-suggests "linux-image-$flavour" |
            sed -n 's/^ *Depends: *\(linux-image-[^ ]*\)$/\1/p' | head -n 1)
  : "${package:?the suite has no linux-image-$flavour}"
  # from 7.0 on the image's package is empty; other packages of the same version have the files
  mapfile -t parts < <(apt-cache depends --no-recommends --no-suggests "$package" |
                       sed -n "s/^ *Depends: *\\(linux-[a-z]*-${package#linux-image-}\\)\$/\\1/p")
  (cd "$work" && apt-get download -qq "$package" "${parts[@]}")
  unset APT_CONFIG
  for part in "$work"/linux-*.deb; do dpkg -x "$part" "$kernel"; done
  # some have their modules in usr/lib
  if [ -d "$kernel/usr/lib/modules" ]; then mkdir -p "$kernel/lib"; mv "$kernel/usr/lib/modules" "$kernel/lib/modules"; fi
  release=$(basename "$kernel"/lib/modules/*)
  /sbin/depmod -b "$kernel" "$release"

  # The initial file system: busybox, and the modules that are needed to mount the real one.
  mkdir -p "$work/initrd"/{bin,modules,proc,sys,dev,host,scratch,new}
  cp /bin/busybox "$work/initrd/bin/"
  n=10
  for module in virtio_pci virtio_mmio 9pnet_virtio 9p overlay; do
    while read -r verb file _; do
      [ "$verb" = insmod ] && ! grep -qxF "$file" "$work/loaded" 2>/dev/null || continue
      echo "$file" >>"$work/loaded"
      target=$work/initrd/modules/$((n++))-$(basename "${file%.xz}")
      case $file in *.xz) xz -dc "$file" >"$target" ;; *) cp "$file" "$target" ;; esac
    done < <(/sbin/modprobe -d "$kernel" -S "$release" --show-depends "$module" 2>/dev/null)
  done
  cat >"$work/initrd/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
for module in /modules/*; do insmod "$module"; done
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,cache=loose,ro hostroot /host
mount -t tmpfs scratch /scratch; mkdir /scratch/upper /scratch/work
mount -t overlay -o lowerdir=/host,upperdir=/scratch/upper,workdir=/scratch/work root /new
mkdir -p /new/out
mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 out /new/out
for dir in proc sys dev; do mount --move /$dir /new/$dir; done
exec switch_root /new /bin/sh /out/.init
INIT
  chmod 755 "$work/initrd/init"
  (cd "$work/initrd" && find . | cpio --quiet -o -H newc | gzip -1) >"$work/initrd.gz"
  mv "$work/initrd.gz" "$kernel/initrd"
fi
exec 8>&-

# What the guest runs as soon as the real file system is mounted.
rm -rf "${out:?}"; mkdir -p "$out"
release=$(basename "$kernel"/lib/modules/*)
image=$kernel/boot/vmlinuz-$release
[ -e "$image" ] || image=$kernel/lib/modules/$release/vmlinuz
cat >"$out/.init" <<EOS
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb
mkdir -p /lib/modules /dev/pts /dev/shm
ln -sfn $(printf %q "$kernel/lib/modules/$release") /lib/modules/$release
mount -t devpts pts /dev/pts; mount -t tmpfs shm /dev/shm; mount -t tmpfs run /run
mount -t tracefs tracefs /sys/kernel/tracing; mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/fd/1 /dev/stdout; ln -sf /proc/self/fd/2 /dev/stderr
ip link set lo up
n=0; read -r began _ </proc/uptime
while [ \$n -lt 50000 ]; do n=\$((n + 1)); done
read -r ended _ </proc/uptime; echo "\$n \$began \$ended" >/out/.loop
EOS
cat >"$out/.run" <<EOS
bash -c $(printf %q "cd $(printf %q "$PWD") && exec $(printf '%q ' "$@")") </dev/null
echo \$? >/out/.code; sync
busybox poweroff -f
EOS
if [ -n "$systemd" ]; then
  # our units only: this machine's own would start its services
  mkdir "$out/.units"
  unit() { printf '%s\n' "${@:2}" >"$out/.units/$1"; }
  for target in sysinit basic shutdown; do unit $target.target "[Unit]" DefaultDependencies=no; done
  unit command.target "[Unit]" DefaultDependencies=no AllowIsolate=yes Wants=command.service
  unit command.service "[Unit]" DefaultDependencies=no "[Service]" Type=oneshot TimeoutStartSec=infinity \
    "ExecStart=/bin/sh -c '. /out/.environment; . /out/.run'" StandardOutput=append:/dev/console StandardError=inherit
  grep ^export "$out/.init" >"$out/.environment"
  cat >>"$out/.init" <<'EOS'
export SYSTEMD_UNIT_PATH=/out/.units SYSTEMD_GENERATOR_PATH=/out/.none SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/out/.none
exec /lib/systemd/systemd --unit=command.target --log-target=kmsg --show-status=no
EOS
else
  echo '. /out/.run' >>"$out/.init"
fi

machine=(-m "${VM_MEMORY:-2048}")
if [ -n "$server" ]; then
  half=$((${VM_MEMORY:-2048} / 2)) last=$((${VM_CPUS:-4} - 1))
  iasl -p "$work/server" "$here/server.asl" >"$work/iasl.log" 2>&1 || { cat "$work/iasl.log" >&2; exit 1; }
  machine+=(-object "memory-backend-ram,id=m0,size=${half}M" -object "memory-backend-ram,id=m1,size=${half}M"
            -numa "node,nodeid=0,cpus=0-$((last / 2)),memdev=m0"
            -numa "node,nodeid=1,cpus=$((last / 2 + 1))-$last,memdev=m1" -numa dist,src=0,dst=1,val=21
            -acpitable "file=${work//,/,,}/server.aml"
            -netdev user,id=net,restrict=on -device virtio-net-pci,netdev=net,vectors=4
            -netdev user,id=card,restrict=on -device e1000e,netdev=card)
fi

echo "booting $release with ${VM_CPUS:-4} emulated CPUs" >&2
# each ends with the one that started it, however that ends
with_parent=(setpriv --pdeathsig KILL)
"${with_parent[@]}" timeout --foreground --kill-after=5 "${VM_TIMEOUT:-540}" \
  "${with_parent[@]}" qemu-system-x86_64 \
  -machine q35 -accel tcg,thread=single -cpu Nehalem,+rdtscp -smp "${VM_CPUS:-4}" "${machine[@]}" \
  -nodefaults -no-reboot -display none -monitor none -serial stdio \
  -kernel "$image" -initrd "$kernel/initrd" \
  -append "console=ttyS0 panic=-1 quiet loglevel=3 mitigations=off nokaslr tsc=reliable" \
  -fsdev local,id=host,path=/,security_model=none,readonly=on,multidevs=remap \
  -device virtio-9p-pci,fsdev=host,mount_tag=hostroot \
  -fsdev "local,id=out,path=${out//,/,,},security_model=none" \
  -device virtio-9p-pci,fsdev=out,mount_tag=out </dev/null > >(sed -u 's/\r$//') 9>&- &
guest=$!
wait "$guest" || echo "error: QEMU failed, or the guest did not end by itself in VM_TIMEOUT (${VM_TIMEOUT:-540} s)" >&2
guest=
code=$(cat "$out/.code" 2>/dev/null) || { echo "error: the guest died before COMMAND ended" >&2; exit 1; }
exit "$code"
