#!/usr/bin/env bash
# Makes a Debian package of the built module, and prints its path. Its version
# is Cargo.toml's; DEBFULLNAME and DEBEMAIL name who makes it.
set -euo pipefail
cd "$(dirname "$0")/.."

name=redis-rwlock
version=$(scripts/version.sh)-1
architecture=$(dpkg --print-architecture)
maintainer="${DEBFULLNAME:-The rwlock authors} <${DEBEMAIL:-rwlock@localhost}>"
built=${CARGO_TARGET_DIR:-target}/release/librwlock.so
out=${CARGO_TARGET_DIR:-target}/deb
package=$out/${name}_${version}_$architecture.deb
# Where dpkg-shlibdeps expects it: in the source of a package.
source=$out/source
root=$source/debian/$name

# The licences of the module and of what is linked into it.
copyright() {
    local crate version licence folder file
    echo "Upstream-Name: rwlock"
    echo
    cat LICENSE
    echo
    echo "The module contains these libraries, each under its own licence. The text of"
    echo "the Apache License is /usr/share/common-licenses/Apache-2.0."
    cargo tree --locked -e normal,no-proc-macro --prefix none --format '{p}|{l}' |
        sed -n 's/ (\*)$//; s/^\([^ ]*\) v\([^ |]*\)|/\1|\2|/p' | sort -u |
        while IFS='|' read -r crate version licence; do
            printf '\n== %s %s: %s\n\n' "$crate" "$version" "$licence"
            folder=$(echo "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/"$crate-$version")
            for file in "$folder"/{LICENSE-MIT,LICENSE,LICENSE.md,LICENSE.txt,COPYING}*; do
                [ ! -f "$file" ] || { cat "$file" && break; }
            done
        done
}

[ -f "$built" ] || { echo "deb: $built is not there: make build" >&2 && exit 1; }
rm -rf "$source"
doc=$root/usr/share/doc/$name
mkdir -p "$root/DEBIAN" "$doc" "$root/usr/share/$name"

DESTDIR=$root PREFIX=/usr scripts/install.sh install >/dev/null
module=$root/usr/lib/redis/modules/librwlock.so
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$module"

install -m 644 packaging/rwlock.conf "$root/usr/share/$name/"
install -m 644 packaging/README.Debian redis.conf docs/operations.md "$doc/"
copyright >"$doc/copyright"
gzip -9nc CHANGELOG.md >"$doc/changelog.gz"
gzip -9nc >"$doc/changelog.Debian.gz" <<EOF
$name ($version) unstable; urgency=medium

  * See changelog.gz.

 -- $maintainer  $(LC_ALL=C date -R -r CHANGELOG.md)
EOF

printf 'Source: %s\n\nPackage: %s\nArchitecture: any\n' $name $name >"$source/debian/control"
depends=$(cd "$source" && dpkg-shlibdeps -O "${module#"$source/"}" | sed -n 's/^shlibs:Depends=//p')
size=$(du -ks --exclude=DEBIAN "$root" | cut -f1)
sed -e "s/@VERSION@/$version/" -e "s/@ARCHITECTURE@/$architecture/" -e "s/@SIZE@/$size/" \
    -e "s/@MAINTAINER@/$maintainer/" -e "s/@DEPENDS@/$depends/" packaging/control >"$root/DEBIAN/control"
install -m 755 packaging/prerm "$root/DEBIAN/prerm"
(cd "$root" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)

chmod -R go-w "$root"
dpkg-deb --build --root-owner-group "$root" "$package" >/dev/null
rm -r "$source"
echo "$package"
