#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Where layer separation begins to pay, by simulation: images/s of BSP with and without a separate head on eight hosts, over the rate of
# their links and the batch, beside what is predicted; and where one head is full, up to 256 workers (bench_sweep.c says of what).
#   NETS    of: alexnet vgg19fc resnet18 (default all)
#   SVG     where to draw it (default build/bench/sweep.svg); needs gnuplot, and without it only the tables are printed
# Virtual time, so the machine does not matter; two minutes of one core.
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "$0")/common.sh"
here=$root/test/bench
sweep=${B:-$root/build}/test/bench/bench_sweep
nets=${NETS:-alexnet vgg19fc resnet18} svg=${SVG:-$out/sweep.svg}
[ -x "$sweep" ] || { echo "sweep: $sweep is not there: make bench builds it"; exit 2; }
export NETS_IN=$here
table=$out/sweep.txt

echo "8 hosts alike, BSP; images/s simulated (predicted), and separated over whole; batch: of each host"
printf '%-9s %6s %8s %10s %10s %10s %10s %8s %8s\n' net batch Mb/s whole predicted separated predicted times predicted
# shellcheck disable=SC2086 # a list of words
"$sweep" rates $nets | tee "$table"
echo
echo "AlexNet, batch 8 of each worker, separated; the bottleneck is what gains the most at twice the speed"
printf '%-9s %6s %6s %6s %6s %10s %10s %8s  %s\n' net Mb/s hosts asked heads images/s predicted a-host bottleneck
"$sweep" workers

command -v gnuplot > /dev/null || { echo "no gnuplot here: nothing is drawn"; exit 0; }
gnuplot << END
set terminal svg size 1080,400 font "sans-serif,12" background "white"
set output "$svg"
set multiplot layout 1,$(wc -w <<< "$nets")
set logscale xy
set xrange [30:13000]
set yrange [0.5:16]
set xlabel "link of each host, Mb/s"
set ylabel "images/s separated over whole"
set grid
do for [net in "$nets"] {
    set title net
    plot for [b in "8 32 128"] "$table" using ((strcol(1) eq net && strcol(2) eq b) ? \$3 : NaN):8 with points pt 7 ps 0.6 \\
             lc (b eq "8" ? 1 : b eq "32" ? 2 : 4) title "batch ".b, \\
         for [b in "8 32 128"] "< awk -v n=".net." -v b=".b." '\$1 == n && \$2 == b' $table" using 3:9 with lines \\
             lc (b eq "8" ? 1 : b eq "32" ? 2 : 4) title "predicted", \\
         1 with lines dashtype 2 lc rgb "gray40" notitle
}
unset multiplot
END
echo "drawn: $svg"
