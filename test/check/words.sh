#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# No file of the library or the command has a word that lib/GLOSSARY.md replaces: its last table is the list. "price" and "score" mean
# other things elsewhere, and are refused in the planner and in the log of its choice. A "look" is refused as a noun: files of profiles and
# checkpoints have keys of that name, and code may look at something.
set -eu
cd "$(dirname "$0")/../.."
status=0
refuse() {   # refuse WORD FILE...: also within an identifier, as echi_WORD_put
    found=$(grep -niE "(^|[^a-z])$1s?([^a-z]|$)" "${@:2}" || true)
    [ -z "$found" ] && return
    status=1
    printf 'lib/GLOSSARY.md has another word for "%s":\n%s\n' "$1" "$found"
}
mapfile -t files < <(find lib tools -name '*.[ch]' -o -name '*.1' -o -name '*.md' ! -name GLOSSARY.md)
for word in strand wishe useless granule 'heads?[ _]apart' 'layers (are |were )?(not )?apart' looked_at 'nobody looked' 'bool look(ed)?' \
    '(a|the|another|each|every|no|two|of|for|by|in|and) look'; do refuse "$word" "${files[@]}"; done
for word in price score; do refuse "$word" lib/core/planner/* lib/job/choice_log.c; done
exit $status
