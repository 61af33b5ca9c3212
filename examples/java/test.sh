#!/bin/sh
# Tests the helper on the server at $RWLOCK_URL, which has to be the test's alone:
# it is demoted for a moment. Then runs the code of README.md.
set -eu
cd "$(dirname "$0")"
out=${OUT:-$(cd ../.. && pwd)/target/examples/java}
mvn -B -q test -Dout="$out"
../../scripts/readme.sh Readme.java.in >"$out/Readme.java"
java -cp "$out/rwlock-example.jar:$out/lib/*" "$out/Readme.java" >"$out/readme.txt"
grep "orders now: token [1-9]" "$out/readme.txt"
../../scripts/readme.sh Migration.java.in ../../docs/migration.md >"$out/Migration.java"
java -cp "$out/rwlock-example.jar:$out/lib/*" "$out/Migration.java" >"$out/migration.txt"
grep -x "saved 1" "$out/migration.txt"
