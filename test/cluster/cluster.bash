# SPDX-License-Identifier: Apache-2.0
# What the cluster tests share; sourced. Each starts nodes of the `echelon` command and says what it expects of them.
set -u
export LC_ALL=C ECH_MEASURE=${ECH_MEASURE:-0.002}   # most of the time of a short run is its measuring
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
. "$root/test/cluster/apart.bash"
echelon=${ECHELON:-$root/build/echelon}
work=$(mktemp -d "${TMPDIR:-/tmp}/echelon-cluster.XXXXXX")
failures=0 checks=0
nodes=()       # process ids of the nodes started by hand, by rank

# What a test leaves running would hold the next one up. Only what was started here is ended. A command in the background that
# gets a signal before it has begun is still a copy of this shell, and would run the trap as well.
clean_up() {
    local pid
    [ "$BASHPID" = $$ ] || return
    for pid in "${nodes[@]}" ${run:-}; do kill -KILL "$pid"; done 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
# The runner ends what makes no progress, with SIGTERM first.
trap '[ "$BASHPID" != $$ ] || { bad "no progress; called at line ${BASH_LINENO[*]}"; exit 1; }' TERM

bad() {
    failures=$((failures + 1))
    printf 'BAD  %s\n' "$*"
    tail -n 8 "$work"/out "$work"/err "$work"/*.log 2>/dev/null | sed 's/^/     | /'
}
check() {      # check WHAT COMMAND...
    local what=$1
    shift
    checks=$((checks + 1))
    "$@" || bad "$what"
}
# await COMMAND...: until it succeeds; asks less often the longer it takes. It has no end: test/run.sh ends a test that makes no progress.
await() {
    local pause=20 text    # milliseconds
    until "$@"; do
        printf -v text '%d.%03d' $((pause / 1000)) $((pause % 1000))
        sleep "$text"
        [ $pause -ge 2000 ] || pause=$((pause * 11 / 10))
    done
}
# says FILE PATTERN WHAT: a line of a running command's output is or will be like this
says() {
    checks=$((checks + 1))
    await says_or_over "$1" "$2"
    grep -qE -e "$2" "$1" || bad "$3: does not say '$2'"
}
says_or_over() { grep -qsE -e "$2" "$1" || ! runs; }
# runs: does anything that was started here? Asked of this shell itself: a copy of it may take running jobs for dead.
runs() { jobs -rp >"$work/running"; [ -s "$work/running" ]; }
verdict() {    # the script's last word
    echo "$1: $checks checks, $failures not as expected"
    [ $failures = 0 ]
}

skip() {       # skip WHY: this script has nothing to say here
    echo "$*"
    exit 77
}
under() { [[ ,${SAN:-}, = *,$1,* ]]; }   # under SANITIZER: address, undefined, thread; is this built with it?

value() { sed -n "s/^  \"$1\": \(.*[^,]\),\{0,1\}$/\1/p" "${2:-$work/report}"; }   # value KEY [REPORT]

# idx_set DIR TRAIN TEST: grey images, labels 0 to 9 in turn; opened in no time, where glyphs must be drawn.
big_endian() { printf "\\x$(printf %08x "$1" | sed 's/../&\\x/g; s/\\x$//')"; }
idx_set() {
    local name count
    mkdir -p "$1"
    for name in train:$2 t10k:$3; do
        count=${name#*:} name=${name%:*}
        {
            big_endian 2051; big_endian "$count"; big_endian 28; big_endian 28
            head -c $((784 * count)) /dev/zero | tr '\0' @
        } >"$1/$name-images-idx3-ubyte"
        {
            big_endian 2049; big_endian "$count"
            for _ in $(seq $(((count + 9) / 10))); do printf '\0\1\2\3\4\5\6\7\10\11'; done | head -c "$count"
        } >"$1/$name-labels-idx1-ubyte"
    done
}

# noise DIR TRAIN TEST: of which no two are alike, and always the same: what glyphs are, too, but each node draws those anew.
noise() {
    local name count
    idx_set "$@"
    for name in train:$2 t10k:$3; do
        count=${name#*:} name=$1/${name%:*}-images-idx3-ubyte
        {
            head -c 16 "$name"
            awk -v bytes=$((784 * count)) 'BEGIN { for (x = 1; bytes-- > 0;) { x = x * 16807 % 2147483647; printf "%c", 1 + x % 255 } }'
        } >"$name.noise"
        mv "$name.noise" "$name"
    done
}

# bars DIR TRAIN TEST: so many times ten pictures, a bar at another height for each label: something that is learnt in no time.
bars() {
    local label name count
    idx_set "$1" $((10 * $2)) $((10 * $3))
    for label in 0 1 2 3 4 5 6 7 8 9; do
        { head -c $((70 * label)) /dev/zero; head -c 100 /dev/zero | tr '\0' '\377'; head -c $((684 - 70 * label)) /dev/zero; } >>"$1/ten"
    done
    for name in train:$2 t10k:$3; do
        count=${name#*:} name=${name%:*}
        {
            big_endian 2051; big_endian $((count * 10)); big_endian 28; big_endian 28
            for _ in $(seq "$count"); do echo "$1/ten"; done | xargs cat
        } >"$1/$name-images-idx3-ubyte"
    done
    rm "$1/ten"
}

# light: from here on `echelon train` trains another $model unless told (and `replay` knows where it is): layers of the same kinds and
# names with a fiftieth of the arithmetic, which is watched by test/ops, and is not what most scripts are about.
# light_if_watched: if this is built with a sanitizer, where arithmetic takes ten times as long.
model=lenet5
light_if_watched() { [ -z "${SAN:-}" ] || light; }
light() {
    model=$work/light
    printf '%s\n' 'input 1 28 28' 'conv2d out 2 kernel 5 stride 4 pad 2' relu 'conv2d out 2 kernel 3' relu \
        'fc out 12' relu 'fc out 12' relu 'fc out 10' >"$model"
    cat >"$work/echelon" <<END
#!/bin/sh
case \$1 in
train | replay)
    word=\$1
    shift
    set -- \$word --model '$model' "\$@" ;;
esac
exec '$echelon' "\$@"
END
    chmod +x "$work/echelon"
    echelon=$work/echelon
}

# plan_of_roles FILE: each role on a rank of its own: 0 coordinates (and is a group by itself), 1 is the head, 2 owns what 2 and 3 train.
plan_of_roles() {
    printf '%s\n' 'sync gssp' 'world 4' 'round 64' 'lr 0.02' 'momentum 0.9' 'decay 0' 'head 1' 'group 0 owner 2 workers 2:32 3:32' \
        'group 1 owner 0 workers 0:32' >"$1"
}

# Of two scripts that start one after the other each has forty ports to itself.
port=$((20000 + $$ * 41 % 12000))
listens() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }   # listens PORT
free_port() {  # into $port
    port=$((port + 1))
    while listens $port; do port=$((port + 1)); done
}

# --- a command that ends by itself
# A simulation measures nothing.
echelon_runs() { if [[ ${1:-} =~ ^(sim|plan)$ ]]; then env -u ECH_MEASURE "$echelon" "$@"; else "$echelon" "$@"; fi; }
# ends_with STATUS PATTERN ARGUMENT...: `echelon ARGUMENT...` ends with that status, and says it on one of its streams.
ends_with() {
    local wanted=$1 pattern=$2 status
    shift 2
    checks=$((checks + 1))
    echelon_runs "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
    [[ $status =~ ^($wanted)$ ]] || { bad "status $status, not $wanted: echelon $*"; return; }
    grep -qE -e "$pattern" "$work/out" "$work/err" || bad "does not say '$pattern': echelon $*"
}
expect() { ends_with "$1" "$2" train "${@:3}"; }
# The same for what is wrong: exactly one sentence on stderr, nothing on stdout.
refuse() {
    expect "$@"
    [ "$(grep -cv 'joined\|listens\|waiting' "$work/err")" = 1 ] || bad "not one sentence: echelon train ${*:3}"
    [ ! -s "$work/out" ] || bad "a table for a run that never was: echelon train ${*:3}"
}

# same_gradient DEVICE: the gradient of a round by a node on the CPU and one on DEVICE is that of one node on the CPU. It is what one step
# of plain SGD changes, by a rate so large that the weights' own rounding is none.
agree() {      # agree BEFORE WANTED GOT: apart by 1e-4 of the largest change at most
    paste <(floats "$1") <(floats "$2") <(floats "$3") |
        awk '{ d = $2 - $3; if (d < 0) d = -d; g = $2 - $1; if (g < 0) g = -g; if (g > most) most = g; if (d > off) off = d }
             END { printf "%d gradients, largest %g, %g apart\n", NR, most, off; exit !(NR == 61706 && most > 1 && off <= 1e-4 * most) }'
}
same_gradient() {
    local run one="--data $work/noise --batch 64 --lr 1000 --momentum 0 --eval-every 0 --progress off"
    noise "$work/noise" 64 10
    # shellcheck disable=SC2086 # a list of options
    for run in "before --steps 0" "cpu --steps 1" "mixed --steps 1 --local 2 --shares 40,24 --device cpu,$1"; do
        expect 0 '^  speed ' $one ${run#* } --save "$work/${run%% *}"
    done
    check "the gradient of a node on the CPU and one on $1" agree "$work/before" "$work/cpu" "$work/mixed"
}

# --- nodes started by hand: rank r's output is in $work/r.log
start() {      # start RANK ARGUMENT...
    local rank=$1
    shift
    : >"$work/$rank.log"   # at once: the command in the background empties it later, and an earlier node's lines would be read till then
    "$echelon" train --rank "$rank" --progress off "$@" >"$work/$rank.log" 2>&1 </dev/null &
    nodes[rank]=$!
}
ended() {      # ended PID: once it has, its exit status is in $status
    { wait "$1"; } 2>/dev/null
    status=$?
}
# node_ends RANK STATUS PATTERN WHAT: that node ends so, and says it (if there is a pattern).
node_ends() {
    checks=$((checks + 1))
    [ $# = 4 ] || bad "node_ends takes a rank, a status, a pattern and what this is about: $*"
    ended "${nodes[$1]}"
    unset "nodes[$1]"
    [[ $status =~ ^($2)$ ]] || bad "$4: rank $1 ended with $status, not $2"
    [ -z "$3" ] || grep -qE -e "$3" "$work/$1.log" || bad "$4: rank $1 does not say '$3'"
}
