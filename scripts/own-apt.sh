# shellcheck shell=bash

# To be sourced: an apt of its own for packages of any Debian. Nothing is installed in it, so it
# finds all that a package needs; the system's own state is neither asked nor touched.

# The key of Debian's archive.
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# own_apt <folder> <deb or deb-src> <mirror> <Debian's suite>...: prepares the folder, reads the
# lists, and sets the array `apt` to the command. The folder's path is absolute.
own_apt() {
    local folder=$1 kind=$2 mirror=$3 suite options=
    shift 3
    mkdir -p "$folder"/{lists/partial,cache/archives/partial}
    : >"$folder/status"
    [ "$kind" != deb ] || options="arch=$(dpkg --print-architecture) target=Packages "
    for suite; do
        echo "$kind [${options}signed-by=$keyring] $mirror $suite main"
    done >"$folder/sources"
    apt=(apt-get -q -o Dir::Etc::SourceList="$folder/sources" -o Dir::Etc::SourceParts=/dev/null
        -o Dir::State::Lists="$folder/lists" -o Dir::State::Status="$folder/status"
        -o Dir::Cache="$folder/cache" -o APT::Sandbox::User=root
        -o APT::Update::Error-Mode=any -o Acquire::Retries=3)
    "${apt[@]}" update
}
