#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every document that a comment, a script or another document names is in the repository, so that a reader can open it.
set -eu
status=0
while IFS=: read -r file line name; do
    if [ -z "$(find . -name build -prune -o -name "$name" -print -quit)" ]; then
        status=1
        echo "$file:$line: names $name, which is not in the repository: cite the publication, or write it into lib/DESIGN.md"
    fi
done < <(grep -rnoIE --include='*.[ch]' --include='*.sh' --include='*.py' --include='*.md' --include='*.cl' --include='*.cu' \
    --include=Makefile --exclude-dir=build --exclude-dir=.git '[A-Za-z0-9_-]+\.md\b' .)
exit $status
