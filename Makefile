# Everything a fresh machine needs: Python 3.11+, a Rust toolchain, make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= dev
# Tests wait more than they compute.
JOBS ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
# By the environment, as maturin does not pass its own --quiet on to pip.
export PIP_QUIET := 1
RUST_SOURCES := $(shell find rust/dfq-* -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

.DEFAULT_GOAL := help
.PHONY: help demo demo-s3 test test-rust lint format bench soak simulate fuzz guards clean
.PHONY: wheel wheel-aarch64 wheel-armv7l wheel-x86_64 wheel-x86_64-musl wheel-aarch64-musl
.PHONY: test-arm bench-arm audit audit-python

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(VENV)/tools: pyproject.toml
	$(PYTHON) -c 'import sys; assert sys.version_info >= (3, 11), "dfq needs Python 3.11 or newer"'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip maturin
	$(BIN)/python -m pip install orjson click
	@touch $@

$(VENV)/dev: $(VENV)/tools
	$(BIN)/python -m pip install --group dev
	@touch $@

$(VENV)/built-$(PROFILE): $(VENV)/tools $(RUST_SOURCES)
	$(BIN)/maturin develop --quiet --profile $(PROFILE)
	@rm -f $(VENV)/built-*
	@touch $@

demo: $(VENV)/built-$(PROFILE) ## Push tasks into a folder and work them off
	$(BIN)/python -m dfq demo

demo-s3: $(VENV)/dev $(VENV)/built-$(PROFILE) ## The same in a bucket, on a SeaweedFS started for it
	$(BIN)/python -m tests.servers.run seaweedfs -- $(BIN)/python -m dfq demo {url}

test: $(VENV)/dev $(VENV)/built-$(PROFILE) test-rust ## Run all tests
	DFQ_TEST_PATIENCE=$${DFQ_TEST_PATIENCE:-3} $(BIN)/python -m pytest -n $(JOBS) --dist worksteal

test-rust:
	cargo test --quiet --package dfq-core

lint: $(VENV)/dev $(VENV)/built-$(PROFILE) ## Check style, types, stubs and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest dfq._core
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml .github/workflows
	cargo fmt --check
	cargo fmt --check --manifest-path rust/fuzz/Cargo.toml
	cargo clippy --quiet --all-targets -- --deny warnings

audit: audit-python ## Look for dependencies with known holes or unwanted licences
	cargo deny check

audit-python: $(VENV)/dev
	$(BIN)/python -m pip install --group audit
	$(BIN)/pip-audit --skip-editable --progress-spinner off

format: $(VENV)/dev ## Put everything into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	cargo fmt

bench: PROFILE := release
bench: $(VENV)/dev ## Measure, and write docs/benchmarks.md (as root: it mounts an ext4 image)
	$(BIN)/maturin develop --quiet --release
	@rm -f $(VENV)/built-*; touch $(VENV)/built-release
	$(BIN)/python -m pip install --group bench
	$(BIN)/python -m benches.report

# A file tree of bookworm (Python 3.11) or trixie (3.13), made and run by tools/arm.
SUITE ?= bookworm
ARM := $(BIN)/python -m tools.arm

$(VENV)/wheel: $(VENV)/tools
	$(BIN)/python -m pip install --group wheel
	@touch $@

wheel: $(VENV)/wheel ## Build the wheel for this machine's processor, and check it
	$(ARM) wheel $(shell uname -m)

wheel-aarch64: $(VENV)/wheel ## Build the wheel for a Raspberry Pi with a 64-bit system
	$(ARM) wheel aarch64

wheel-armv7l: $(VENV)/wheel ## Build the wheel for a Raspberry Pi with a 32-bit system
	$(ARM) wheel armv7l

# Debian has no Rust library for musl; rustup has (`rustup target add`).
wheel-x86_64 wheel-x86_64-musl wheel-aarch64-musl: $(VENV)/wheel
	$(ARM) wheel $(@:wheel-%=%)

test-arm: wheel-aarch64 ## Run the core of the tests on arm64 by QEMU (SUITE=bookworm or trixie)
	$(ARM) prepare $(SUITE)
	$(ARM) test $(SUITE)

bench-arm: wheel-aarch64 ## Measure on arm64 by QEMU (KEEP=1 makes it the baseline)
	$(BIN)/python -m pip install --group bench
	$(ARM) prepare $(SUITE)
	$(ARM) bench $(SUITE) $(if $(KEEP),--keep)

soak: $(VENV)/dev $(VENV)/built-$(PROFILE) ## Kill processes at random for a long time
	DFQ_KILLS=5000 $(BIN)/python -m pytest tests/acceptance/crash/test_kill_at_random.py --timeout=7200

simulate: $(VENV)/dev $(VENV)/built-$(PROFILE) ## Run 100,000 seeds of the simulation of a bucket
	$(BIN)/python -m tests.simulation.seeds --count 100000

fuzz: ## Feed USV files of every kind to the reader and the merge, for DFQ_FUZZ_SECONDS (60)
	rust/fuzz/run.sh $${DFQ_FUZZ_SECONDS:-60}

guards: $(VENV)/dev ## Take each guard out once, and see a test go red
	$(BIN)/python tests/guards/run.py

clean: ## Remove what was built
	rm -rf $(VENV) target python/dfq/*.so
