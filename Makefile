# taillab: `make run` measures memcached on this machine, `make test` runs every test.
# Both first install what is missing. Steps that need root use sudo and say what for.

CARGO   ?= cargo
BINARY  := target/release/taillab
.PHONY: help run test vm build dist lint bench soak soak-live fuzz clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 18

run: build ## Measure memcached on this machine and write a report
	@scripts/setup.sh run
	@# 4: the measurement is invalid; the result exists and says why
	@scripts/as-root.sh "starts memcached in a network namespace and loads the kernel probe" \
	  $(BINARY) run memcached $(ARGS) || [ $$? -eq 4 ]

build: ## Build the release binary
	@scripts/setup.sh build
	@$(CARGO) build --release --locked

dist: ## Build the fastest binary, for packages, with a training run (a quarter of an hour)
	@scripts/setup.sh build
	@scripts/dist.sh

test: ## Run every test (lints, units, live here and in QEMU, browser)
	@scripts/setup.sh test
	@scripts/test.sh

vm: ## Run the live tests of the probe on two other kernels, and those of RDMA, tune and noise, in QEMU (minutes)
	@scripts/setup.sh test
	@scripts/test-vm.sh

lint: ## Check formatting and lints only
	@scripts/setup.sh build
	@$(CARGO) fmt --all --check
	@$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

bench: ## Measure the quick part of docs/benchmarks.md (minutes; nothing else should run)
	@scripts/setup.sh test
	@scripts/bench.sh

soak: ## Record a server at its peak for ten minutes (ARGS=60: 60 s)
	@scripts/setup.sh test
	@scripts/soak.sh $(ARGS)

soak-live: ## Run the live tests twenty times and print a table (ARGS="20 busy": beside a busy loop on CPU 1)
	@scripts/setup.sh test
	@scripts/soak-live.sh $(ARGS)

fuzz: ## Feed damaged files to every reader for an hour (ARGS=60: 60 s)
	@scripts/setup.sh test
	@FUZZ_SECONDS=$(or $(ARGS),3600) $(CARGO) test --workspace --test cli --locked -- --nocapture damaged_files

clean: ## Remove what was built
	@$(CARGO) clean
