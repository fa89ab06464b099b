# taillab: `make run` measures memcached on this machine, `make test` finds out whether it works here.
# Both first install what is missing. Steps that need root use sudo and say what for.

CARGO   ?= cargo
BINARY  := target/release/taillab
.PHONY: help run build dist wheel test live lint vm check soak rounds servers recorder churn fuzz bench clean

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

dist: ## Build the packages, .deb and tarball, of the fastest binary, with a training run (a quarter of an hour)
	@scripts/setup.sh build
	@scripts/dist.sh

wheel: ## Build the Python package, and test it in a fresh environment
	@scripts/setup.sh wheel
	@scripts/wheel.sh

# Stages of one program: those of one call build once, run nothing twice, and are counted in one line.
TESTS := python3 scripts/tests

test: ## Find out whether it works here: units, command line, browser, Python, live tests of each kind (about 12 minutes)
	@scripts/setup.sh test
	@$(TESTS) test $(ARGS)

live: ## Run all live tests, as root, and units that take long (ARGS="--only NAME": those whose names contain NAME)
	@scripts/setup.sh test
	@$(TESTS) live $(ARGS)

lint: ## Check format and lints
	@scripts/setup.sh build
	@$(TESTS) lint

vm: ## Run what this kernel and this hardware lack in guests in QEMU (ARGS="--only rdma": one of them)
	@scripts/setup.sh test
	@scripts/setup.sh vm
	@$(TESTS) vm $(ARGS)

check: ## Run what a change must pass: lint, test, live and the quickest guest
	@scripts/setup.sh test
	@scripts/setup.sh vm
	@$(TESTS) lint test live guest

soak: ## Run for hours: twenty rounds of the live tests, real servers, a recorder at its peak, churn, the fuzzer, the benchmarks
	@$(MAKE) --keep-going rounds servers recorder churn fuzz bench

rounds: ## Run the live tests twenty times, every third time beside a loop on CPU 1
	@scripts/setup.sh test
	@$(TESTS) live soak $(or $(ARGS),--rounds 20 --busy-every 3)

servers: build ## Trace real servers with a known trouble each: Varnish, HAProxy, Java, Go … (ARGS="--only redis": one of them)
	@scripts/setup.sh servers
	@scripts/as-root.sh "starts servers on loopback and traces them" python3 scripts/servers $(BINARY) $(ARGS)

recorder: ## Record a server at its peak for ten minutes (ARGS=60: 60 s)
	@scripts/setup.sh test
	@scripts/recorder.sh $(ARGS)

churn: ## Explain and trace servers to which each request comes on a connection of its own, for an hour each (ARGS=60: 60 s)
	@scripts/setup.sh servers
	@scripts/churn.sh $(ARGS)

fuzz: ## Feed damaged files, answers and streams to every reader for an hour (ARGS=60: 60 s)
	@scripts/setup.sh test
	@CARGO="$(CARGO)" scripts/fuzz.sh $(ARGS)

bench: ## Measure the quick part of docs/benchmarks.md (minutes; nothing else should run)
	@scripts/setup.sh test
	@scripts/bench.sh

clean: ## Remove what was built
	@$(CARGO) clean
