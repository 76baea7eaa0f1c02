#!/usr/bin/env bash
# check-deploy.sh   what is in deploy/, by the tools it is for. Not part of `make test`: Helm and kubeconform are built
# from their Go modules first (some minutes, once), and the schemas are 40 MiB.
#
#   * the chart: helm lint, and helm template for every file in deploy/helm/sizegate/ci, against the schemas of
#     Kubernetes and the Prometheus operator (kubeconform, strict), and the config in it by `sizegate check`
#   * deploy/kubernetes against the same schemas
#   * the systemd unit: systemd-analyze verify, and its security figure, which must stay below 1.5
#   * the compose file's configs are YAML
#
# SIZEGATE_BIN names the sizegate to ask (target/debug/sizegate).
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

helm_version=v3.22.0 kubeconform_version=v0.8.0
kubernetes=k8s.io/kubernetes@v1.34.1 kubernetes_version=1.34
operator=github.com/prometheus-operator/prometheus-operator@v0.85.0
tools=$PWD/.cache/deploy
sizegate=${SIZEGATE_BIN:-target/debug/sizegate}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

module() { go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p'; }

install_tools() {
  need go golang
  need python3 python3
  need openssl openssl
  python3 -c 'import yaml' 2>/dev/null || install_packages python3-yaml
  mkdir -p "$tools"
  [ -x "$tools/helm" ] || GOBIN=$tools go install "helm.sh/helm/v3/cmd/helm@$helm_version"
  [ -x "$tools/kubeconform" ] || GOBIN=$tools go install "github.com/yannh/kubeconform/cmd/kubeconform@$kubeconform_version"
  if [ ! -f "$tools/schemas/.complete" ]; then
    local crds
    crds=$(module "$operator")/example/prometheus-operator-crd
    python3 scripts/kubernetes-schemas.py "$tools/schemas" "$(module "$kubernetes")/api/openapi-spec/swagger.json" \
      "$crds/monitoring.coreos.com_servicemonitors.yaml" "$crds/monitoring.coreos.com_prometheusrules.yaml"
    touch "$tools/schemas/.complete"
  fi
}

conform() {
  "$tools/kubeconform" -strict -summary -kubernetes-version "$kubernetes_version.0" \
    -schema-location "$tools/schemas/{{.ResourceKind}}{{.KindSuffix}}.json" "$@"
}

# The chart's rules are links to deploy/prometheus, which Helm follows and says so each time.
quiet() { grep -v 'found symbolic link' || true; }

check_chart() {
  local values name
  for values in deploy/helm/sizegate/ci/*-values.yaml; do
    name=$(basename "$values" -values.yaml)
    "$tools/helm" lint --strict --quiet --kube-version "$kubernetes_version" deploy/helm/sizegate -f "$values" 2>&1 | quiet
    "$tools/helm" template "$name" deploy/helm/sizegate --kube-version "$kubernetes_version" -f "$values" 2>&1 >"$work/$name.yaml" | quiet
    echo "chart, $name:"
    conform "$work/$name.yaml"
    check_config "$work/$name.yaml"
  done
}

# memory BUDGET LIMIT   the memory of the rendered pod (LIMIT may be empty), or nothing where the chart refuses
memory() {
  "$tools/helm" template memory deploy/helm/sizegate --show-only templates/deployment.yaml --kube-version "$kubernetes_version" \
    --set 'bootstrapServers={kafka:9092}' --set-string "config.memory.budget=$1" --set-string "resources.limits.memory=$2" \
    2>/dev/null | sed -n '/limits:/,/requests:/s/ *memory: *//p'
}

check_memory() {
  local budget limit wanted
  while read -r budget limit wanted; do
    [ "$limit" = - ] && limit=''
    [ "$(memory "$budget" "$limit")" = "${wanted:-}" ] ||
      { echo "budget $budget, limit ${limit:-none}: not ${wanted:-refused}, but $(memory "$budget" "$limit")" && exit 1; }
  done <<'CASES'
512MiB - 768Mi
1GiB - 1280Mi
1GB - 1210Mi
1536 - 257Mi
512MiB 640Mi 640Mi
512MiB 639Mi
512MiB 1G 1G
4GiB 768Mi
CASES
  echo "the pod's memory follows the budget"
}

# What Helm takes as `config`, and what its schema refuses before anything is installed.
check_schema() {
  local fine setting helm_says
  while read -r fine setting; do
    helm_says=refused
    "$tools/helm" template schema deploy/helm/sizegate --kube-version "$kubernetes_version" --set 'bootstrapServers={kafka:9092}' \
      --set "$setting" >/dev/null 2>&1 && helm_says=fine
    [ "$helm_says" = "$fine" ] || { echo "config, $setting: not $fine, but $helm_says" && exit 1; }
  done <<'CASES'
fine config.mode=enforce
fine config.mode=${MODE}
fine config.near_limit=0.9
fine config.rules[0].name=a,config.rules[0].topics={a\,b},config.rules[0].limits.record_bytes=64KiB
fine config.rules[0].name=a,config.rules[0].topics=a,config.rules[0].offload.redeem=false
fine config.claim_check.store_options.region=eu-west-1
refused config.mood=enforce
refused config.mode=enforced
refused config.limits.record_byte=64KiB
refused config.rules[0].limits.record_bytes.max=64KiB
refused config.telemetry.histograms=some
refused config.listener=9092
CASES
  echo "the schema knows the config's keys"
}

# The config in a rendered ConfigMap. Files it names are mounted in the pod only: certificates stand in for them.
check_config() {
  if [ ! -f "$work/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=stands-in -days 1 \
      -keyout "$work/tls.key" -out "$work/tls.crt" 2>/dev/null
    cp "$work/tls.crt" "$work/ca.crt"
  fi
  python3 - "$1" "$work" <<'P'
import pathlib, sys, yaml
work = pathlib.Path(sys.argv[2])
documents = yaml.safe_load_all(open(sys.argv[1]))
config = next(d["data"]["sizegate.yaml"] for d in documents if d and d["kind"] == "ConfigMap")
for folder in ("sizegate-tls", "sizegate-cluster-tls", "sizegate-sasl"):
    (work / folder).mkdir(exist_ok=True)
    (work / folder / "password").write_text("stands in\n")
    for file in ("tls.crt", "tls.key", "ca.crt"):
        (work / folder / file).write_bytes((work / file).read_bytes())
    config = config.replace(f"/etc/{folder}/", f"{work}/{folder}/")
(work / "sizegate.yaml").write_text(config)
P
  "$sizegate" check --config "$work/sizegate.yaml" >/dev/null && echo "its config is fine"
}

check_unit() {
  need systemd-analyze systemd
  local unit=$work/sizegate.service figure
  # `verify` looks for the program.
  sed "s|/usr/local/bin/sizegate|$(realpath "$sizegate")|" deploy/systemd/sizegate.service >"$unit"
  systemd-analyze verify "$unit"
  figure=$(systemd-analyze security --offline=yes --threshold=15 "$unit" | sed -n 's/.*exposure level.*: \([0-9.]*\).*/\1/p')
  echo "systemd-analyze security: $figure"
}

[ -x "$sizegate" ] || cargo build --locked
install_tools
check_chart
check_memory
check_schema
echo "sidecar:"
# Strimzi's own kinds have no schema here.
conform -skip KafkaTopic,KafkaUser deploy/kubernetes/*.yaml
check_unit
find deploy -name '*.yaml' -not -path '*/helm/*' -print0 | xargs -0 python3 -c '
import sys, yaml
for path in sys.argv[1:]: list(yaml.safe_load_all(open(path)))
print(len(sys.argv) - 1, "files of YAML")'
echo "deploy/ is fine"
