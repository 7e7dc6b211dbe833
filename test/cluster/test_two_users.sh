#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Nodes of two users on one machine: without a key each side refuses a node of the other user, and the run goes on with the right one.
. "$(dirname "$0")/cluster.bash"
light_if_watched
[ "$(id -u)" = 0 ] || skip "needs root, to start nodes as another user"
grep -qsE '^[0-9a-f]+ +4 ' /proc/net/netlink || skip "this system has no sock_diag: nodes cannot tell users apart"
as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
chmod 755 "$work"
"${as_nobody[@]}" "$echelon" --version >/dev/null 2>&1 || skip "setpriv is missing, or user 65534 cannot run $echelon"
idx_set "$work/data" 200 20
head -c 32 /dev/urandom >"$work/key"
cp "$work/key" "$work/nobodys"
chmod 600 "$work/key" "$work/nobodys"
chown 65534 "$work/nobodys"
printf '#!/bin/sh\nexec %s "%s" "$@"\n' "${as_nobody[*]}" "$echelon" >"$work/nobody"
chmod 755 "$work/nobody"

node=(--data "$work/data" --world 2 --steps 3 --eval-every 0 --join-timeout 600)
at() { free_port; node+=(--coordinator "127.0.0.1:$port"); }   # the next run's; of two the last counts
one='give all nodes the same --key file, or --insecure if every user may join'

at
start 0 "${node[@]}"
echelon=$work/nobody start 1 "${node[@]}"
node_ends 1 19 "rank 0 at 127.0.0.1:$port ended the join: .* rank 1 belongs to user 65534, not 0: $one" "a worker of another user"
start 1 "${node[@]}"
node_ends 1 0 '' "a worker of the right user after it"
node_ends 0 0 '' "the coordinator after a worker of another user"

at
echelon=$work/nobody start 0 "${node[@]}" --insecure
start 1 "${node[@]}"
node_ends 1 19 "what answers for rank 0 at 127.0.0.1:$port belongs to user 65534, not 0: $one" "a coordinator of another user"
node_ends 0 18 'rank 1 closed the connection' "a coordinator that its worker has refused"

at
echelon=$work/nobody start 0 "${node[@]}" --insecure
start 1 "${node[@]}" --insecure
node_ends 1 0 '' "two users with --insecure"
node_ends 0 0 '' "two users with --insecure, at rank 0"

at
echelon=$work/nobody start 0 "${node[@]}" --key "$work/nobodys"
start 1 "${node[@]}" --key "$work/key"
node_ends 1 0 '' "two users with one key"
node_ends 0 0 '' "two users with one key, at rank 0"
verdict two_users
