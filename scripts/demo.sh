#!/usr/bin/env bash
# demo.sh [demo|up|ladder|down]
#
#   demo     real Kafka, sizegate in front, the size ladder through it, what each gate did; leaves nothing behind
#   up       the same Kafka and sizegate, left running for exploring
#   ladder   the size ladder through what `up` left running
#   down     ends what `up` left running
#
# KAFKA_VERSION chooses the Kafka release (4.3.0); SIZEGATE_BIN takes a binary built before. All ports are chosen free, all on 127.0.0.1.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

version=${KAFKA_VERSION:-4.3.0}
up=$PWD/.cache/up
binary=${SIZEGATE_BIN:-${CARGO_TARGET_DIR:-target}/release/sizegate}

say() { printf '%s\n' "$*" >&2; }

columns() {
  local columns=${COLUMNS:-100}
  [ -t 1 ] && columns=$(tput cols 2>/dev/null || echo "$columns")
  [ "$columns" -lt 60 ] && columns=60
  [ "$columns" -gt 140 ] && columns=140
  echo "$columns"
}

# prepare   builds and downloads, each only if need be
prepare() {
  need_java
  if [ -z "${SIZEGATE_BIN:-}" ]; then
    need_rust
    say "building sizegate (release)"
    cargo build --release --locked --quiet --bin sizegate </dev/null
  fi
  say "fetching Kafka $version"
  scripts/kafka-libs.sh "$version" broker >/dev/null
  scripts/kafka-libs.sh "$version" client >/dev/null
  scripts/java-classes.sh >/dev/null
}

# choose_ports   sets kafka_port (and one behind it), listener_port (and three nodes behind it), admin_port
choose_ports() {
  kafka_port=$(free_ports 7)
  listener_port=$((kafka_port + 2))
  admin_port=$((kafka_port + 6))
}

# write_config FILE
write_config() {
  cat >"$1" <<YAML
# What the demo runs with. Every key: config/sizegate.yaml
cluster:
  bootstrap_servers: [localhost:$kafka_port]
listener:
  bind: 127.0.0.1:$listener_port
  node_ports: {first: $((listener_port + 1)), node_ids: 1-3}
admin:
  bind: 127.0.0.1:$admin_port
rules:
  - name: notes
    topics: [ladder.notes]
    limits: {record_bytes: 64KiB}
    remedy: "Put the note in the object store and send its address: https://wiki.example/notes"
  - name: unguarded
    topics: [ladder.unguarded]
    limits: {batch_bytes: none}
  - name: claims
    topics: [ladder.claims]
    limits: {record_bytes: 64KiB}
    action: offload
claim_check:
  store: file://$(dirname "$1")/claims
  keys: [{id: demo, secret: "no secret, and thirty-two bytes long"}]
  # An object that is missing is not waited for: in the demo nobody writes it late.
  grace: 0s
YAML
}

# is_ready   whether /readyz answers 200
is_ready() (
  exec 2>/dev/null 3<>"/dev/tcp/127.0.0.1/$admin_port" || exit 1
  printf 'GET /readyz HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
  read -r status <&3
  [[ $status == *" 200"* ]]
)

# start DIR   both; sets kafka_pid and sizegate_pid as soon as there is something to end
start() {
  local dir=$1
  say "starting Kafka $version on 127.0.0.1:$kafka_port"
  scripts/kafka-properties.sh "$dir/kafka" "$kafka_port"
  KAFKA_HEAP=1g setsid scripts/kafka-node.sh "$version" "$dir/kafka" >"$dir/kafka.log" 2>&1 </dev/null &
  kafka_pid=$!
  wait_for_line "$dir/kafka.log" "Kafka Server started" "$kafka_pid"

  say "starting sizegate on 127.0.0.1:$listener_port"
  write_config "$dir/sizegate.yaml"
  start_sizegate "$dir"
}

# start_sizegate DIR   sets sizegate_pid
start_sizegate() {
  local dir=$1 end
  setsid "$binary" run --config "$dir/sizegate.yaml" >>"$dir/sizegate.log" 2>&1 </dev/null &
  sizegate_pid=$!
  end=$((SECONDS + 60))
  until is_ready; do
    if ! kill -0 "$sizegate_pid" 2>/dev/null || [ $SECONDS -ge $end ]; then
      say "sizegate did not become ready; its log:"
      cat "$dir/sizegate.log" >&2
      exit 1
    fi
    sleep 0.05
  done
}

# ladder   needs listener_port and admin_port
ladder() {
  java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Dorg.slf4j.simpleLogger.defaultLogLevel=off \
    -cp "$(scripts/java-classes.sh):$(scripts/kafka-libs.sh "$version" client)/*" SizeLadder \
    "bootstrap=localhost:$listener_port" "metrics=http://127.0.0.1:$admin_port/metrics" "columns=$(columns)" </dev/null
}

# ticket DIR   what the ladder's last record has become
ticket() {
  cat <<TEXT

The last one is on no broker: its value is a file, and this travels in its place (sizegate claim inspect):

$("$binary" claim inspect ladder.claims 0 0 --config "$1/sizegate.yaml" | fold -s -w "$(($(columns) - 4))" | sed 's/^/    /')

    $(find "$1/claims" -type f -exec stat -c '%s bytes in %n' {} \;)
TEXT
}

# originals [from=OFFSET …]   what a consumer gets of that topic, a JSON line a record, and where it ends
originals() {
  java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Dorg.slf4j.simpleLogger.defaultLogLevel=off \
    -cp "$(scripts/java-classes.sh):$(scripts/kafka-libs.sh "$version" client)/*" Originals \
    "bootstrap=localhost:$listener_port" topic=ladder.claims records=1 "$@" </dev/null
}

# shown   its input, folded and indented
shown() { fold -s -w "$(($(columns) - 4))" | sed 's/^/    /'; }

# read_back   what a consumer gets of the ladder's last record
read_back() {
  cat <<TEXT

A consumer that knows nothing of all this reads the record through sizegate, and gets its value back:

$(originals | head -n 1 | shown)
TEXT
}

# lose DIR   the object is deleted: where the record goes, and how it is brought back
lose() {
  local object
  object=$(find "$1/claims" -type f)
  mv "$object" "$1/aside"
  # What was read a moment ago is still in its memory.
  end_process "$sizegate_pid"
  start_sizegate "$1"
  cat <<TEXT

Now the object is deleted. A consumer that reads the topic goes on past the record; it ends at

$(originals seconds=10 | tail -n 1 | shown)

and the ticket is in the fallback topic (sizegate claim fallback ladder.claims):

$("$binary" claim fallback ladder.claims --config "$1/sizegate.yaml" | shown)

The object is put back, from a backup say, and the record with it (sizegate claim redrive ladder.claims --apply):

TEXT
  mv "$1/aside" "$object"
  cat <<TEXT
$("$binary" claim redrive ladder.claims --apply --config "$1/sizegate.yaml" | shown)

and the consumer, which goes on where it was, gets its value:

$(originals from=1 | head -n 1 | shown)
TEXT
}

running() { [ -f "$up/$1.pid" ] && kill -0 "$(cat "$up/$1.pid")" 2>/dev/null; }

show_addresses() {
  . "$up/ports"
  cat <<TEXT
Kafka $version runs at localhost:$kafka_port, sizegate in front of it:

  bootstrap.servers      localhost:$listener_port
  limits in force        http://localhost:$admin_port/api/v1/topics
  last refusals          http://localhost:$admin_port/api/v1/refusals
  the page               http://localhost:$admin_port/
  metrics                http://localhost:$admin_port/metrics
  configuration          $up/sizegate.yaml (read again when it changes)
  logs                   $up/sizegate.log, $up/kafka.log

  make ladder            sends the size ladder through it
  make down              ends both and removes their data
TEXT
}

case ${1:-demo} in
  demo)
    dir=$(mktemp -d)
    kafka_pid='' sizegate_pid=''
    clean() {
      trap '' INT TERM HUP
      [ -n "$sizegate_pid" ] && end_process "$sizegate_pid"
      # Its data goes with it: nothing to flush.
      [ -n "$kafka_pid" ] && kill -9 "$kafka_pid" 2>/dev/null
      wait 2>/dev/null
      rm -rf "$dir"
    }
    trap clean EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    trap 'exit 129' HUP
    prepare
    choose_ports
    start "$dir"
    say "sending the size ladder through it"
    say
    ladder
    ticket "$dir"
    read_back
    lose "$dir"
    cat <<TEXT

Each refusal of sizegate's is also at /api/v1/refusals (the last 1,000), under the same id. The log has the first of a
topic, gate, action and client, and counts per minute of what follows. Its first:
$(grep -m 1 'refused' "$dir/sizegate.log" | fold -s -w "$(($(columns) - 4))" | sed 's/^/    /')

Where to look next:
  make up                      the same Kafka and sizegate, left running; it prints the addresses and the page
  config/sizegate.yaml         every setting, explained
  README.md                    the quick start with your own Kafka
  docs/troubleshooting.md      every error message and what to do about it
TEXT
    ;;
  up)
    if running kafka && running sizegate; then
      show_addresses
      exit 0
    fi
    "$0" down 2>/dev/null
    prepare
    mkdir -p "$up"
    choose_ports
    printf 'version=%s kafka_port=%s listener_port=%s admin_port=%s\n' "$version" "$kafka_port" "$listener_port" \
      "$admin_port" >"$up/ports"
    kafka_pid='' sizegate_pid=''
    record() {
      [ -n "$kafka_pid" ] && echo "$kafka_pid" >"$up/kafka.pid"
      [ -n "$sizegate_pid" ] && echo "$sizegate_pid" >"$up/sizegate.pid"
      return 0
    }
    trap 'record; "$0" down 2>/dev/null' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    start "$up"
    record
    trap - EXIT
    show_addresses
    ;;
  ladder)
    if ! running sizegate; then
      say "nothing is up: make up"
      exit 1
    fi
    . "$up/ports"
    ladder
    ;;
  down)
    for name in sizegate kafka; do
      if running "$name"; then end_process "$(cat "$up/$name.pid")"; fi
    done
    rm -rf "$up"
    say "down"
    ;;
  *)
    say "no such command: $1 (demo, up, ladder, down)"
    exit 64
    ;;
esac
