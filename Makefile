# Everything runs in .venv, made from the lock files with hashes. `make` lists the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
T ?= tests
# The tests run in three parts at once, even by the time they take: two cores are busy while some test waits.
PART_1 := tests/acceptance tests/validation tests/intake tests/cli tests/gateway
PART_2 := tests/workflows $(filter-out %/test_browser.py,$(wildcard tests/web/test_*.py))
# Whatever the environment says, bytecode is kept: each part would compile the tests and their libraries anew, for 3 s.
PYTEST := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest
# Beside others: threads of polars in each part would hand their work to one another while both cores are busy. The first
# part has them, with all commands that run in processes of their own; so has every part that is run alone.
BESIDE := POLARS_MAX_THREADS=1 $(PYTEST)

LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $(UPGRADE)
EXTRA = $(PYTHON) -c "import sys, tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project'] \
    ['optional-dependencies'][sys.argv[1]], sep='\n')" $(1)

.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "batchpay needs Python 3.11 or newer" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV)

# batchpay itself with what it and its add-ons need to run.
LOCKS := requirements.lock requirements-web.lock requirements-postgres.lock
$(VENV)/.run: $(BIN)/python $(LOCKS) tests/build.lock pyproject.toml
	@echo "installing batchpay into $(VENV), once: about 300 MB, a minute or two" >&2
	@$(PIP) --require-hashes $(patsubst %,-r %,$(LOCKS) tests/build.lock)
	@$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

# What tests and checks need on top.
$(VENV)/.test: $(VENV)/.run tests/requirements.lock
	@echo "installing what the tests and checks need, once" >&2
	@$(PIP) --require-hashes -r tests/requirements.lock
	@touch $@

# The programs that the benchmarks hold batchpay against, in a place of their own: pandas beside it would slow its start.
PEERS := $(VENV)/peers
$(VENV)/.bench: $(VENV)/.test requirements.lock tests/benchmarks/requirements.lock
	@$(PYTHON) -m venv $(PEERS)
	@for lock in requirements.lock tests/benchmarks/requirements.lock; do \
	    $(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r $$lock || exit 1; \
	done
	@touch $@

.PHONY: demo
demo: $(VENV)/.run  ## sandbox, sample file, submission, results, rejects and report: no credentials needed
	@$(BIN)/batchpay demo

.PHONY: test
test: $(VENV)/.test  ## run the tests (T=path for some of them)
ifeq ($(T),tests)
	@# The first part is shown as it goes; the output of the others follows at the end.
	@logs=$$(mktemp -d); \
	$(BESIDE) $(PART_2) >"$$logs/2" 2>&1 & second=$$!; \
	$(BESIDE) tests $(PART_1:%=--ignore=%) $(PART_2:%=--ignore=%) >"$$logs/3" 2>&1 & third=$$!; \
	trap 'kill $$second $$third' INT TERM; \
	code=0; $(PYTEST) $(PART_1) || code=$$?; \
	wait $$second || code=$$?; wait $$third || code=$$?; \
	cat "$$logs/2" "$$logs/3"; rm -rf "$$logs"; exit $$code
else
	@$(PYTEST) $(T)
endif

.PHONY: lint
lint: $(VENV)/.test  ## ruff and mypy --strict
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

.PHONY: man
man: $(VENV)/.test  ## write the manual page from the commands' help to build/batchpay.1
	@mkdir -p build
	@$(BIN)/python -m tests.support.man_page build/batchpay.1

.PHONY: wheel
wheel: $(VENV)/.test  ## build sdist and wheel into dist/; the same commit gives the same wheel
	@rm -rf build dist *.egg-info
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)} $(BIN)/python -m build --no-isolation

.PHONY: image
image: wheel  ## build the container image of docs/examples/Containerfile and run it once (BUILDER=docker)
	@$(or $(BUILDER),podman) build --quiet -t batchpay -f docs/examples/Containerfile .
	@$(or $(BUILDER),podman) run --rm --read-only batchpay --version

.PHONY: campaign-quick
campaign-quick: $(VENV)/.test  ## kills, power cuts, faults and sabotages: about 500 points
	@$(BIN)/python -m tests.campaign --quick

.PHONY: campaign
campaign: $(VENV)/.test  ## the same at every point, 10,000 walks of the model and 500 over PostgreSQL, a year of nights: hours
	@$(BIN)/python -m tests.model --walks 10000 --length 14
	@$(BIN)/python -m tests.model --walks 500 --postgres
	@$(BIN)/python -m tests.campaign
	@$(BIN)/python -m tests.campaign.nights
	@$(BIN)/python -m tests.campaign.servers
	@$(BIN)/python -m tests.campaign.hosts

.PHONY: nights
nights: $(VENV)/.test  ## 365 nights of 50 rows and 30 of 5,000 on one ledger, with mishaps: a quarter of an hour
	@$(BIN)/python -m tests.campaign.nights

.PHONY: walks
walks: $(VENV)/.test  ## 200 random walks over what people do, against a gateway that counts (SEED=1)
	@$(BIN)/python -m tests.model --walks 200 --seed $(or $(SEED),1)

.PHONY: bench
bench: $(VENV)/.bench  ## all benchmarks against their peers: about 40 minutes
	@$(BIN)/python -m tests.benchmarks

.PHONY: bench-quick
bench-quick: $(VENV)/.bench  ## the same on small files: about 8 minutes
	@$(BIN)/python -m tests.benchmarks --quick

.PHONY: bench-check
bench-check: $(VENV)/.bench  ## fail if a ratio misses its target
	@$(BIN)/python -m tests.benchmarks --quick --check

.PHONY: lock
lock:  ## write the lock files for pyproject.toml (needs uv; UPGRADE=--upgrade takes newer versions)
	@$(LOCK) pyproject.toml -o requirements.lock
	@$(call EXTRA,web) | $(LOCK) -c requirements.lock -o requirements-web.lock -
	@$(call EXTRA,postgres) | $(LOCK) -c requirements.lock -o requirements-postgres.lock -
	@$(LOCK) --group lock-build -o tests/build.lock
	@$(LOCK) $(patsubst %,-c %,$(LOCKS) tests/build.lock) --group test --group lint -o tests/requirements.lock
	@$(LOCK) -c tests/requirements.lock -c requirements.lock --group bench -o tests/benchmarks/requirements.lock

.PHONY: clean
clean:  ## remove everything that was built
	@rm -rf build dist *.egg-info demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
