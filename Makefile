# Where rustup puts cargo: a shell opened before that does not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help run run-cluster build install uninstall deb test model-test soak soak-planted reshard valgrind server-suites mutants engines test-engines test-deb test-redisson examples top bench bench-quick bench-docs bench-peers instructions fmt lint test-docs test-msrv lint-scripts test-docker fuzz miri

# Builds the benchmark, then runs it on a server that is known to be supported.
BENCH = scripts/setup.sh build server && RWLOCK_SERVER=$$(scripts/server.sh) && export RWLOCK_SERVER && \
	cargo build --release --locked --example floor && cargo bench --locked --bench compare --

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Run a server with the module in the foreground (PORT=6379, SERVER=redis-server)
	@scripts/run.sh

run-cluster: ## Run a cluster of three primaries in the foreground (PORT=7001 NODES=3)
	@scripts/run-cluster.sh

build: ## Build the release module into target/release
	@scripts/setup.sh build
	cargo build --release --locked

install: ## Install the built module (PREFIX=/usr, DESTDIR=)
	@scripts/install.sh install

uninstall: ## Remove it again
	@scripts/install.sh uninstall

deb: build ## Make a Debian package in target/deb
	@scripts/setup.sh deb
	@scripts/deb.sh

test: ## Run every test (SERVER=redis-server)
	@scripts/setup.sh build server
	@RWLOCK_SERVER=$$(scripts/server.sh) && export RWLOCK_SERVER && cargo test --release --locked

model-test: ## Compare a server with a model of the contract (TIME=60 SEED= ENGINE= PROFILE=)
	@scripts/model-test.sh

soak: ## Let faults strike while clients work, and check what they saw (TIME=60 SEED= ENGINE= TOPOLOGY=single|sentinel|cluster)
	@scripts/soak.sh

mutants: ## Change the rules in one place at a time: do the unit tests notice? (ONLY=src/core/release)
	@scripts/mutants.sh

fuzz: ## Fuzz by coverage, each target for TIME seconds; 0: only the kept inputs (TIME=60 TARGET=all CORPUS=)
	@scripts/fuzz.sh

miri: ## Run the unit tests of the rules and of the parsers under Miri (some minutes)
	@scripts/miri.sh

engines: ## Fetch the servers of test-engines into engines/ (on Debian)
	@scripts/engines.sh

test-engines: ## Run the integration tests on each of them (ENGINES="redis-7.0 valkey-8.1" JOBS=2)
	@scripts/test-engines.sh

test-deb: build ## Install the package on a clean system and use it (as root, on Debian)
	@scripts/setup.sh deb system
	@scripts/test-deb.sh

test-docker: ## Build the Dockerfile on Debian's own Rust and Redis, and use the image (as root, on Debian)
	@scripts/test-docker.sh

test-docs: ## Run the commands of README.md and docs/ that no other test runs
	@scripts/test-docs.sh

test-msrv: ## Build everything with the oldest Rust that Cargo.toml promises
	@scripts/test-msrv.sh

soak-planted: ## Plant ten bugs, one at a time, and expect the soak to find each (BUGS= TIME=180)
	@scripts/soak-planted.sh

reshard: ## Let cluster clients of three languages lock while slots move and nodes come and go (TIME=60 ENGINE=)
	@scripts/reshard.sh

valgrind: ## Run tests on servers under valgrind (ONLY="sessions:: waiting::")
	@scripts/valgrind.sh

server-suites: ## Run the suites of Redis and Valkey with the module and without (SUITES= ONLY=unit/multi)
	@scripts/server-suites.sh

test-redisson: ## Share locks with the real Redisson, and soak both (SOAK_SECONDS=60)
	@scripts/test-redisson.sh

bench: ## Compare with what users have, in a quarter of an hour (SERVER=redis-server ONLY="pairs tax")
	@$(BENCH) $(ONLY)

bench-quick: ## The same in a smaller size, in 3 minutes
	@$(BENCH) --quick $(ONLY)

bench-docs: ## The same as bench, written to docs/benchmarks.md
	@$(BENCH) --docs

bench-peers: ## Install what bench can compare with: PostgreSQL, etcd (on Debian)
	@scripts/setup.sh peers

instructions: build ## Count the instructions of a lock and its unlock, and of the floor (needs valgrind)
	cargo build --release --locked --example floor
	@scripts/instructions.py target/release/librwlock.so target/release/examples/libfloor.so

examples: ## Build, test and run the examples together (RWLOCK_EXAMPLES_ONLY="python go")
	@scripts/examples.sh

top: ## Watch the locks of a server (PORT=6379, or URL=redis://127.0.0.1:6379)
	@python3 examples/top/top.py $(or $(URL),$(addprefix redis://127.0.0.1:,$(PORT)))

fmt: ## Check the formatting
	@scripts/setup.sh fmt
	cargo fmt --all --check

lint: ## Check with clippy and rustdoc, warnings denied
	@scripts/setup.sh build clippy
	cargo clippy --release --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --locked --no-deps --document-private-items

lint-scripts: ## Check the shell scripts (shellcheck) and the workflows (actionlint)
	@scripts/lint-scripts.sh
