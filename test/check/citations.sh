#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every document that a comment, a script or another document names is in the repository, so that a reader can open it; and a heading
# that is cited as PROTOCOL.md, "Heading" is there.
set -eu
status=0
files=(--include='*.[ch]' --include='*.sh' --include='*.py' --include='*.md' --include='*.cl' --include='*.cu' --include=Makefile
    --exclude-dir=build --exclude-dir=.git)
while IFS=: read -r file line name; do
    if [ -z "$(find . -name build -prune -o -name "$name" -print -quit)" ]; then
        status=1
        echo "$file:$line: names $name, which is not in the repository: cite the publication, or write it into lib/PROTOCOL.md"
    fi
done < <(grep -rnoIE "${files[@]}" '[A-Za-z0-9_-]+\.md\b' .)
while IFS=: read -r file line cited; do
    name=lib/${cited%%[,\`]*} heading=${cited#*\"}
    if ! grep -qxF "## ${heading%\"}" "$name"; then
        status=1
        echo "$file:$line: cites \"${heading%\"}\" of $name, which has no heading of that name"
    fi
done < <(grep -rnoIE "${files[@]}" '(ARCHITECTURE|PROTOCOL|STATUS)\.md`?, "[^"]+"' . | grep -v '"Heading"')
exit $status
