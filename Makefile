VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.setup-done
WORKERS ?= 4
PROTOS := $(wildcard src/muster/wire/*.proto)

# Whatever the shell says: each of the tests' many processes would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-rest times soak mutants lint fmt bench proto clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## Make .venv with everything in it (PYTHON=python3.12 picks the interpreter)

$(STAMP): requirements.lock pyproject.toml hatch_build.py scripts/setup.sh $(PROTOS)
	@PYTHON="$(PYTHON)" scripts/setup.sh
	@touch $@

demo: setup ## Run the demonstration
	@$(BIN)/python -m demo.run

# More workers than cores, because tests of real processes mostly wait. Files of the other tests share
# clusters, so a file stays with one worker, in the order of tests/conftest.py.
test: setup ## Run the tests of every behaviour, in a few minutes (WORKERS=1: one after the other)
	@$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m "not thorough"

test-all: ## Run all tests: with the attacks, kill -9 by the dozen, all end-to-end tests and 200 seeds
	@failed=0; $(MAKE) test || failed=1; $(MAKE) test-rest || failed=1; exit $$failed

# Attacks measure how long others wait meanwhile, so nothing else runs beside them.
test-rest: setup ## Run the tests that test-all has beyond test
	@failed=0; \
	$(BIN)/pytest -n 0 -m thorough tests/attacks || failed=1; \
	$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder -m thorough --ignore=tests/attacks || failed=1; \
	exit $$failed

times: setup ## Measure how long each test takes, for the choice of those that make test runs
	@$(BIN)/pytest -n $(WORKERS) --no-loadscope-reorder --write-times

soak: setup ## Run the control plane from seed after seed, until stopped; goes on where it was
	@$(BIN)/python -m proving.swarm --state .soak --resume

mutants: setup ## Put deliberate bugs into a copy of the code, and see that seeds find them
	@$(BIN)/python -m proving.mutants

lint: setup ## Check format, lint, types and import layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

fmt: setup ## Format the code and mend what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: setup ## Run the benchmarks, or one of them: make bench B=b1
	@$(BIN)/python -m benchmarks $(B)

proto: setup ## Regenerate the agent protocol's modules from its proto files
	@$(BIN)/python hatch_build.py

clean: ## Remove all that the other targets made, .venv included
	rm -rf $(VENV) build dist benchmarks/results .hypothesis .*_cache .soak
	rm -f $(foreach suffix,py pyi,src/muster/wire/*_pb2.$(suffix) src/muster/wire/*_pb2_grpc.$(suffix))
	find src proving tests benchmarks demo -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
