#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C file says under which licence it is, in its first line.
set -eu
status=0
while IFS= read -r file; do
    IFS= read -r first <"$file" || true
    case $first in
    '/* SPDX-License-Identifier: Apache-2.0'*) ;;
    *) status=1; echo "$file: the first line must begin with: /* SPDX-License-Identifier: Apache-2.0" ;;
    esac
done < <(find hal lib net ops port test tools -name '*.[ch]')
exit $status
