#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Each installed header compiles alone, as strict C11 and as C++11, without a warning.
# usage: CC=gcc STAGE=build/stage test/check/headers.sh
set -eu
for header in "$STAGE"/include/echelon/*.h; do
    name=$(basename "$header")
    echo "#include <$name>" | $CC -I"$STAGE/include/echelon" -std=c11 -pedantic -Wall -Wextra -Werror -x c -fsyntax-only -
    if echo | $CC -x c++ -fsyntax-only - 2>/dev/null; then
        echo "#include <$name>" | $CC -I"$STAGE/include/echelon" -std=c++11 -pedantic -Wall -Wextra -Werror -x c++ -fsyntax-only -
    else
        echo "$CC compiles no C++ here: $name was tried as C only"
    fi
done
