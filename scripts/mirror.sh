#!/bin/sh
# Prints the mirror that this machine uses for its own Debian; nothing where
# there is none.
set -eu
# shellcheck disable=SC1091,SC2016 # the system's file; the words are apt's
. /etc/os-release 2>/dev/null && apt-get indextargets 'Created-By: Packages' 2>/dev/null \
    --format '$(RELEASE) $(COMPONENT) $(ORIGIN) $(REPO_URI)' |
    awk -v release="${VERSION_CODENAME:-}" '$1 == release && $2 == "main" && $3 ~ /Debian|ORIGIN/ { print $4; exit }'
