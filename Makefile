# Everything a person or CI does with this repository. The work is in scripts/; each says what it needs.
# Downloads and what is made of them are in .cache/, fetched once.

.PHONY: help demo up ladder down test stress soak compatibility lint dependencies speed-gate check-deploy image bench screenshots fmt clean-cache

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

demo: ## a real Kafka, sizegate in front, every size limit on a record's way; leaves nothing behind
	@scripts/demo.sh demo

up: ## the demo's Kafka and sizegate, left running for exploring
	@scripts/demo.sh up

ladder: ## the size ladder through what `make up` left running
	@scripts/demo.sh ladder

down: ## ends what `make up` left running
	@scripts/demo.sh down

test: ## all set-up and all tests, against real brokers with real clients
	@scripts/test.sh

stress: ## two minutes of topics, partitions, ACLs and brokers that come and go: no rule is evaded
	@scripts/setup-tests.sh
	SIZEGATE_STRESS_SECONDS=$${SIZEGATE_STRESS_SECONDS:-120} cargo test --locked --test it -- --nocapture rules_hold::stress::

soak: ## an hour of clients, while brokers and proxies are killed and stopped, limits change, topics come and go
	@scripts/soak.sh

compatibility: ## real clients of many versions through sizegate; writes the table in docs/compatibility.md
	@scripts/compatibility.sh

lint: ## formatting and clippy
	cargo fmt --all --check
	cargo clippy --locked --all-targets -- -D warnings

dependencies: ## licences, bans and sources of all dependencies, and those that nothing uses
	@scripts/dependencies.sh

speed-gate: ## fails where a request costs over 3 % more instructions than benches/instructions-dev.json says
	@BENCH_PROFILE=dev scripts/bench.sh count --runs 4 --baseline benches/instructions-dev.json

check-deploy: ## what is in deploy/, by Helm, kubeconform and systemd-analyze
	@scripts/check-deploy.sh

image: ## the container image without an engine, and a test of it (root)
	@scripts/image.sh

bench: ## the benches, beside a direct connection and HAProxy
	@scripts/bench.sh

screenshots: ## the pictures of README and docs/ again, from real runs
	@scripts/screenshots.sh

fmt: ## formats the sources
	cargo fmt --all

clean-cache: ## removes all downloads
	rm -rf .cache
