#!/usr/bin/env bash
# Makes packages of a program that is built: package.sh BINARY FOLDER. A Debian package and a tarball, each with the
# program, its manual pages and its completions, and their checksums. The same commit gives the same bytes.
# DEB_COMPRESSION=none is quick, for tests.
set -euo pipefail
binary=$(realpath "$1") out=$(realpath -m "$2")
cd "$(dirname "$0")/.."
version=$("$binary" --version | sed 's/^taillab //')
arch=$(dpkg --print-architecture 2>/dev/null || uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
mkdir -p "$out"

# what both have, below PREFIX
lay_out() {
  local prefix=$1
  install -D -m 755 "$binary" "$prefix/bin/taillab"
  mkdir -p "$work/man" "$prefix/share/man/man1"
  "$binary" man "$work/man"
  for page in "$work"/man/*.1; do gzip -9n <"$page" >"$prefix/share/man/man1/${page##*/}.gz"; done
  mkdir -p "$prefix/share/bash-completion/completions" "$prefix/share/zsh/vendor-completions" \
    "$prefix/share/fish/vendor_completions.d" "$prefix/share/doc/taillab"
  "$binary" completions bash >"$prefix/share/bash-completion/completions/taillab"
  "$binary" completions zsh >"$prefix/share/zsh/vendor-completions/_taillab"
  "$binary" completions fish >"$prefix/share/fish/vendor_completions.d/taillab.fish"
  install -m 644 README.md LICENSE-APACHE LICENSE-MIT docs/grafana.json packaging/daemonset.yaml packaging/Containerfile \
    "$prefix/share/doc/taillab/"
  chmod -R u=rwX,go=rX "$prefix"
}

# The packages of the libraries that the program is linked with. Where no tool finds them, those of the build.
depends() {
  local found=
  if command -v dpkg-shlibdeps >/dev/null; then
    mkdir -p "$work/shlibs/debian"
    printf 'Source: taillab\n\nPackage: taillab\nArchitecture: any\n' >"$work/shlibs/debian/control"
    found=$(cd "$work/shlibs" && dpkg-shlibdeps -O "$binary" 2>/dev/null | sed -n 's/^shlibs:Depends=//p') || true
  fi
  echo "${found:-libc6, libelf1, libgcc-s1, zlib1g}"
}

deb=$out/taillab_${version}_$arch.deb
lay_out "$work/deb/usr"
{
  echo 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/'
  echo 'Upstream-Name: taillab'
  printf '\nFiles: *\nCopyright: the taillab authors\nLicense: Apache-2.0 or MIT\n'
  printf ' The texts are LICENSE-APACHE and LICENSE-MIT in this folder.\n'
} >"$work/deb/usr/share/doc/taillab/copyright"
mkdir "$work/deb/DEBIAN"
cat >"$work/deb/DEBIAN/control" <<CONTROL
Package: taillab
Version: $version
Architecture: $arch
Maintainer: the taillab authors <taillab@localhost>
Installed-Size: $(du -sk --apparent-size "$work/deb/usr" | cut -f1)
Depends: $(depends)
Recommends: iproute2
Suggests: memcached, nginx-light, python3-mpi4py
Section: utils
Priority: optional
Description: tail-latency laboratory for Linux servers
 Measures the latency of a server, compares it with the best that queueing
 theory allows under the same load, says what caused the difference, and
 tries what would help. Measuring a server needs root and a kernel with BTF.
CONTROL
(cd "$work/deb" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
chmod 644 "$work"/deb/DEBIAN/*
find "$work/deb" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
dpkg-deb -Z"${DEB_COMPRESSION:-xz}" --root-owner-group --build "$work/deb" "$deb" >/dev/null

name=taillab-$version-linux-$arch
lay_out "$work/tar/$name"
tar -C "$work/tar" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -cf - "$name" |
  gzip -9n >"$out/$name.tar.gz"

(cd "$out" && sha256sum "${deb##*/}" "$name.tar.gz" >SHA256SUMS)
ls -l "$out"
