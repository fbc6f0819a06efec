#!/usr/bin/env bash
# Runs every fuzz target for a while, all at once: `rust/fuzz/run.sh [SECONDS]`.
#
# libFuzzer with the stable compiler: what it needs is the compiler's own coverage pass; the core is
# safe Rust, so sanitizers (which need another compiler) would find nothing more. Needs a C++
# compiler. What breaks a target stays in target/fuzz/artifacts, with the command to repeat it.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
host=$(rustc --version --verbose | sed -n 's/^host: //p')
out=target/fuzz
export CARGO_TARGET_DIR=$out
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table"
# With a target, build scripts and macros are not made for the fuzzer.
cargo build --quiet --release --manifest-path rust/fuzz/Cargo.toml --target "$host"

status=0
declare -A running
for target in usv_reader usv_merge; do
    mkdir -p "$out/corpus/$target" "$out/artifacts"
    "$out/$host/release/$target" "$out/corpus/$target" "rust/fuzz/seeds/$target" \
        -dict=rust/fuzz/words.dict -max_total_time="$seconds" -timeout=10 -max_len=2048 \
        -artifact_prefix="$out/artifacts/$target-" -print_final_stats=1 \
        >"$out/$target.log" 2>&1 &
    running[$target]=$!
done
for target in "${!running[@]}"; do
    if wait "${running[$target]}"; then
        echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$out/$target.log") runs, none broke it"
    else
        status=1
        tail -n 40 "$out/$target.log"
        echo "$target: broken; $out/$target.log has all, $out/artifacts the input"
    fi
done
exit "$status"
