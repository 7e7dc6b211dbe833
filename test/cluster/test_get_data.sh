#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tools/get-data: from a folder, and from a network that is played by a false curl.
# make check only: it unpacks MNIST for 14 s.
set -u
[ -z "${SAN:-}" ] || { echo "a script, which no sanitizer sees"; exit 77; }
tool=$(cd "$(dirname "$0")/../.." && pwd)/tools/get-data
die() { echo "test_get_data: $*"; exit 1; }
expect() { # expect STATUS WORD ARGUMENTS...: the exit status, and a word in what is said
    want=$1 word=$2
    shift 2
    said=$("$tool" "$@" 2>&1)
    got=$?
    [ $got -eq "$want" ] || die "get-data $* ended with $got, not $want: $said"
    case $said in *"$word"*) ;; *) die "get-data $* does not say '$word': $said" ;; esac
}
nothing_in() { [ ! -e "$1" ] || die "$1 was left behind: $(ls -A "$1")"; }

expect 0 'usage: get-data' --help
expect 2 'usage: get-data'
expect 2 'unknown option --up' mnist --up
expect 2 'unknown data set cifar,' cifar
expect 2 '--to needs a folder' mnist --to
expect 1 'is not a folder' mnist --from /nonexistent --to /nonexistent/to

[ -n "${ECHELON_DATA:-}" ] || { echo 'skipped: ECHELON_DATA is not set'; exit 0; }
[ -f "$ECHELON_DATA/mnist/train-images-idx3-ubyte.gz" ] || { echo "skipped: no .gz files in $ECHELON_DATA/mnist"; exit 0; }
real=$(cd "$ECHELON_DATA/mnist" && pwd)
tmp=$(mktemp -d) || die 'no temporary folder'
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' HUP INT TERM
names='train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'
whole() { # whole DIR: the four files and nothing else, as gzip unpacks them
    for n in $names; do gzip -dc <"$real/$n.gz" | cmp -s - "$1/$n" || die "$1/$n is not what $n.gz holds"; done
    [ "$(ls -A "$1" | wc -l)" -eq 4 ] || die "$1 has more than the four files: $(ls -A "$1")"
}

# Packed files, then plain ones under their other names, then again over what is there.
expect 0 'MNIST is in' mnist --from "$real" --to "$tmp/with space/a"
whole "$tmp/with space/a"
mkdir "$tmp/plain"
for n in $names; do cp "$tmp/with space/a/$n" "$tmp/plain/$(echo "$n" | sed 's/-idx/.idx/')"; done
expect 0 'MNIST is in' mnist --to "$tmp/b" --from "$tmp/plain"
whole "$tmp/b"
echo damaged >"$tmp/b/t10k-labels-idx1-ubyte"
expect 0 'MNIST is in' mnist --to "$tmp/b" --from "$real"
whole "$tmp/b"

# A missing and a damaged source leave nothing, and what was there stays.
mkdir "$tmp/bad"
cp "$real"/*.gz "$tmp/bad"
rm "$tmp/bad/t10k-labels-idx1-ubyte.gz"
expect 1 'neither t10k-labels-idx1-ubyte.gz' mnist --from "$tmp/bad" --to "$tmp/c"
nothing_in "$tmp/c"
head -c 4000 "$real/t10k-labels-idx1-ubyte.gz" >"$tmp/bad/t10k-labels-idx1-ubyte.gz"
expect 3 't10k-labels-idx1-ubyte.gz is not MNIST' mnist --from "$tmp/bad" --to "$tmp/c"
nothing_in "$tmp/c"
mkdir "$tmp/c"
echo mine >"$tmp/c/train-labels-idx1-ubyte"
expect 3 'is not MNIST' mnist --from "$tmp/bad" --to "$tmp/c"
[ "$(ls -A "$tmp/c")" = train-labels-idx1-ubyte ] && [ "$(cat "$tmp/c/train-labels-idx1-ubyte")" = mine ] ||
    die "what was in --to did not survive a failure: $(ls -A "$tmp/c")"

# The network: a curl that finds files in $FALSE_NET/<host>.
mkdir "$tmp/bin"
cat >"$tmp/bin/curl" <<'END'
#!/bin/sh
while [ $# -gt 0 ]; do
    case $1 in -o) out=$2; shift ;; https://*) url=$1 ;; esac
    shift
done
host=${url#https://}
cp "$FALSE_NET/${host%%/*}/${url##*/}" "$out" 2>/dev/null || exit 22
END
chmod +x "$tmp/bin/curl"
PATH=$tmp/bin:$PATH FALSE_NET=$tmp/net
export PATH FALSE_NET
one=$FALSE_NET/ossci-datasets.s3.amazonaws.com two=$FALSE_NET/storage.googleapis.com
mkdir -p "$one" "$two"
expect 1 'no mirror gave' mnist --to "$tmp/d"
nothing_in "$tmp/d"
cp "$tmp"/bad/*.gz "$one"
expect 3 'is not MNIST' mnist --to "$tmp/d"
nothing_in "$tmp/d"
cp "$real"/t10k*.gz "$two"
expect 0 'trying the next mirror' mnist --to "$tmp/d"
whole "$tmp/d"

# CIFAR-10: single files of the right size, packed or plain; the published archive by its sum.
mkdir "$tmp/cifar" "$tmp/archive"
batches='data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin'
for n in $batches; do
    truncate -s 30730000 "$tmp/cifar/$n" && echo "$n" | dd of="$tmp/cifar/$n" conv=notrunc status=none
done
expect 1 'no-such is not a folder: give the folder that has CIFAR-10' cifar10 --from "$tmp/no-such"
if command -v xz >/dev/null; then xz -1 "$tmp/cifar/data_batch_3.bin"; fi
expect 0 'CIFAR-10 is in' cifar10 --from "$tmp/cifar" --to "$tmp/e"
[ "$(ls -A "$tmp/e" | wc -l)" -eq 6 ] || die "not the six files: $(ls -A "$tmp/e")"
for n in $batches; do [ "$(head -c ${#n} "$tmp/e/$n")" = "$n" ] || die "$n is not what was given"; done
truncate -s 30729999 "$tmp/cifar/test_batch.bin"
expect 0 'CIFAR-10 is in' cifar10 --from "$tmp/cifar" --to "$tmp/e"   # all there: nothing is taken
expect 3 'test_batch.bin is no batch of CIFAR-10: it holds 30729999 bytes' cifar10 --from "$tmp/cifar" --to "$tmp/f"
nothing_in "$tmp/f"
rm "$tmp/cifar/test_batch.bin"
expect 1 'nor test_batch.bin nor test_batch.bin.xz is in' cifar10 --from "$tmp/cifar" --to "$tmp/f"
if command -v xz >/dev/null; then
    echo damaged >"$tmp/cifar/test_batch.bin.xz"
    expect 3 'test_batch.bin.xz cannot be unpacked' cifar10 --from "$tmp/cifar" --to "$tmp/f"
fi
nothing_in "$tmp/f"
echo another >"$tmp/archive/cifar-10-binary.tar.gz"
expect 3 'cifar-10-binary.tar.gz is not CIFAR-10' cifar10 --from "$tmp/archive" --to "$tmp/f"
nothing_in "$tmp/f"
expect 1 'cannot be fetched' cifar10 --to "$tmp/f"
mkdir "$FALSE_NET/www.cs.toronto.edu"
cp "$tmp/archive/cifar-10-binary.tar.gz" "$FALSE_NET/www.cs.toronto.edu"
expect 3 'is not CIFAR-10' cifar10 --to "$tmp/f"
nothing_in "$tmp/f"
# The right archive, as far as one can be made here: its sum is that of what the copy of the tool expects.
(cd "$tmp" && mkdir cifar-10-batches-bin && cp e/*.bin cifar-10-batches-bin && tar -czf archive/cifar-10-binary.tar.gz cifar-10-batches-bin)
sum=$(sha256sum <"$tmp/archive/cifar-10-binary.tar.gz" | cut -d ' ' -f 1)
sed "s/^CIFAR_SUM=.*/CIFAR_SUM=$sum/" "$tool" >"$tmp/get-data"
chmod +x "$tmp/get-data"
tool=$tmp/get-data
expect 0 'CIFAR-10 is in' cifar10 --from "$tmp/archive" --to "$tmp/f"
for n in $batches; do cmp -s "$tmp/e/$n" "$tmp/f/$n" || die "$n is not what the archive holds"; done
echo 'test_get_data: passed'
