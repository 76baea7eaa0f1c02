# Sourced by the other scripts, never run. Bash.

# install_packages PACKAGE...   from the system's packages, when that is possible without asking (root and apt-get).
install_packages() {
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
  echo "installing $* from the system's packages" >&2
  {
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@" ||
      { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }
  } >&2 </dev/null
}

# need TOOL PACKAGE...   makes sure that a tool is there: installs it, else says exactly what to install and ends.
need() {
  local tool=$1
  shift
  command -v "$tool" >/dev/null 2>&1 && return 0
  install_packages "$@" && command -v "$tool" >/dev/null 2>&1 && return 0
  echo "sizegate's scripts need '$tool'. Install it and run again, for example:" >&2
  echo "  Debian, Ubuntu:  sudo apt-get install $*" >&2
  case $tool in
    java | javac) echo "  any system:      a JDK, 17 or newer, on the PATH" >&2 ;;
    mvn) echo "  any system:      Apache Maven 3.8 or newer on the PATH" >&2 ;;
    node | npm) echo "  any system:      Node.js 20 or newer on the PATH" >&2 ;;
    python3) echo "  any system:      Python 3.9 or newer with venv on the PATH" >&2 ;;
    go) echo "  any system:      Go 1.26 or newer on the PATH" >&2 ;;
  esac
  exit 2
}

# A JDK (java and javac), 17 or newer: brokers of Kafka 4 are compiled for 17.
need_java() {
  need java default-jdk-headless
  need javac default-jdk-headless
  local major
  major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -1)
  if [ "${major:-0}" -lt 17 ]; then
    echo "Java ${major:-?} is on the PATH; Kafka 4 needs 17 or newer (Debian, Ubuntu: openjdk-17-jdk-headless)" >&2
    exit 2
  fi
}

# Rust, as new as Cargo.toml asks for. Not from the system's packages, which are older and would only fail later.
need_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
  have=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
  [ "$(printf '%s\n' "$wanted" "${have:-0}" | sort -V | head -1)" = "$wanted" ] && return 0
  echo "sizegate needs Rust $wanted or newer${have:+, and $have is on the PATH}. Install it from https://rustup.rs and run again." >&2
  exit 2
}

# free_ports N   prints the first of N ports in a row on which nobody listens on 127.0.0.1. They lie below the
# range the kernel gives to outgoing connections, so that no client can sit on one between now and its use, and
# above those that tests take.
free_ports() {
  local count=$1 first port free
  while true; do
    first=$((31000 + (RANDOM * 32768 + RANDOM) % 1700))
    free=yes
    for ((port = first; port < first + count; port++)); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then free=no && break; fi
    done
    [ $free = yes ] && echo "$first" && return 0
  done
}

# wait_for_line FILE TEXT PID   until TEXT stands in FILE; fails when process PID ends first, or after 300 s.
wait_for_line() {
  local file=$1 text=$2 pid=$3 end=$((SECONDS + 300))
  until grep -q -F -- "$text" "$file" 2>/dev/null; do
    if ! kill -0 "$pid" 2>/dev/null || [ $SECONDS -ge $end ]; then
      echo "waited for '$text' in vain; the end of $file:" >&2
      tail -30 "$file" >&2 || true
      return 1
    fi
    sleep 0.05
  done
}

# end_process PID   SIGTERM, ten seconds, SIGKILL.
end_process() {
  local pid=$1 i
  kill "$pid" 2>/dev/null || return 0
  for ((i = 0; i < 200; i++)); do
    kill -0 "$pid" 2>/dev/null || return 0
    sleep 0.05
  done
  kill -9 "$pid" 2>/dev/null || true
}

# npm_modules NAME FOLDER   installs what FOLDER's lock file pins into .cache/NAME, once; prints the folder of modules
# (for NODE_PATH). Run at the repository's root.
npm_modules() {
  local lock=$2/package-lock.json env=$PWD/.cache/$1 cache=$PWD/.cache/npm
  if ! cmp -s "$lock" "$env/.complete"; then
    mkdir -p .cache
    exec 9>".cache/.lock-${1//\//-}"
    flock 9
    if ! cmp -s "$lock" "$env/.complete"; then
      need node nodejs npm
      need npm npm
      rm -rf "$env"
      mkdir -p "$env"
      cp "$2/package.json" "$lock" "$env"
      # In the folder, not by --prefix: npm 11 then looks for itself in the lock file.
      (cd "$env" && npm ci --cache "$cache" --ignore-scripts --no-audit --no-fund --loglevel error) >&2 </dev/null
      cp "$lock" "$env/.complete"
    fi
  fi
  echo "$env/node_modules"
}

# python_venv NAME REQUIREMENTS   a virtual environment in .cache/NAME with what the file pins, once; prints its
# interpreter. Run at the repository's root.
python_venv() {
  local wanted=$2 env=$PWD/.cache/$1
  if ! cmp -s "$wanted" "$env/.complete"; then
    mkdir -p "$(dirname "$env")"
    exec 9>".cache/.lock-${1//\//-}"
    flock 9
    if ! cmp -s "$wanted" "$env/.complete"; then
      need python3 python3 python3-venv
      rm -rf "$env"
      python3 -c 'import ensurepip' 2>/dev/null || install_packages python3-venv
      python3 -m venv "$env" >&2
      PIP_DISABLE_PIP_VERSION_CHECK=1 "$env/bin/pip" install --quiet --no-input --only-binary :all: \
        --cache-dir .cache/pip -r "$wanted" >&2 </dev/null
      cp "$wanted" "$env/.complete"
    fi
  fi
  echo "$env/bin/python"
}

# once FOLDER LOCK COMMAND…   runs COMMAND, which fills FOLDER, unless it was filled to its end before. Who asks meanwhile waits.
once() {
  local folder=$1 lock=$2
  shift 2
  [ -f "$folder/.complete" ] && return 0
  mkdir -p "$(dirname "$lock")"
  exec 9>"$lock"
  flock 9
  if [ ! -f "$folder/.complete" ]; then
    "$@"
    touch "$folder/.complete"
  fi
  exec 9>&-
}

# go_programs FOLDER   builds the Go programs in it (pinned by go.sum), once for what they say; prints the folder of binaries.
# Run at the repository's root.
go_programs() {
  local root=$PWD name key binaries
  name=bin-$(basename "$(dirname "$1")")
  key=$(find "$1" -name '*.go' -o -name go.mod -o -name go.sum | LC_ALL=C sort | xargs cat | cksum | tr ' ' '-')
  binaries=$root/.cache/go/$name-$key
  once "$binaries" ".cache/go/.lock-$name" build_go "$1" "$root" "$name" "$binaries"
  echo "$binaries"
}

build_go() {
  local root=$2 name=$3 binaries=$4
  need go golang-go
  rm -rf .cache/go/"$name"-*
  mkdir -p "$binaries"
  (cd "$1" && GOMODCACHE=$root/.cache/go/modules GOCACHE=$root/.cache/go/build GOFLAGS='-modcacherw -mod=readonly' \
    CGO_ENABLED=0 go build -o "$binaries/" ./...) >&2 </dev/null
}
