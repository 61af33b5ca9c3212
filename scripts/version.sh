#!/bin/sh
# Prints the version, which stands in Cargo.toml.
awk -F '"' '$1 == "version = " { print $2; exit }' "$(dirname "$0")/../Cargo.toml"
