#!/usr/bin/env bash
# supply-chain.sh [--offline]   licences, advisories, bans and sources of all dependencies, and the SBOM
#
# Needs cargo-deny and cargo-cyclonedx on the PATH (cargo install cargo-deny cargo-cyclonedx --locked). The advisory
# database is fetched from RustSec; --offline takes the one that cargo-deny fetched last.
# Writes target/sbom/sizegate.cdx.json (CycloneDX 1.5).
set -euo pipefail
cd "$(dirname "$0")/.."

offline=()
if [ "${1:-}" = --offline ]; then offline=(--offline); fi
for tool in cargo-deny cargo-cyclonedx; do
  command -v "$tool" >/dev/null || {
    echo "needs $tool: cargo install $tool --locked" >&2
    exit 2
  }
done

cargo-deny "${offline[@]}" --locked check
# It writes beside the manifest.
cargo-cyclonedx cyclonedx --format json --spec-version 1.5 --override-filename sizegate.cdx
mkdir -p target/sbom
# Where it was made is nobody's business.
sed "s|path+file://$PWD|path+file:///sizegate|g" sizegate.cdx.json >target/sbom/sizegate.cdx.json
rm sizegate.cdx.json
echo "the SBOM is target/sbom/sizegate.cdx.json"
