# Every target makes .venv by itself; a bare clone needs only python3 and make. PYTHON=... chooses the interpreter.
.DEFAULT_GOAL := help
.PHONY: help demo test test-oldest test-ecosystem check check-types check-rules format bench bench-peers prove lock clean FORCE

STAMP := .venv/.stamp
# More processes than two cores, because many tests wait: for real batch systems, for limits of time, for a killed pilot.
PYTEST := .venv/bin/pytest -q -n 6 --dist worksteal
OLDEST := .venv-oldest
ECOSYSTEM := .venv-ecosystem
TYPED := $(wildcard src tests bench scripts)
ARGS :=
PEERS := bench/out/peers

help: ## Show this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name text; do \
		printf 'make %-14s %s\n' "$$name" "$$text"; done

demo: $(STAMP) ## Run the demonstration: a server, pilots and tasks on this machine
	.venv/bin/python examples/demo.py

# Each process that runs tests compiles all of them, for half a minute, unless the byte code may be kept.
test test-oldest test-ecosystem prove check: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP) ## Run all tests (ARGS="-k name" passes options to pytest)
	$(PYTEST) tests $(ARGS)

# What is the same whatever is installed is not tried again here: model and pilot import only the standard library
# (tests/unit/test_layers.py holds them to it), of the engine only matching uses a dependency, numpy, and rules of the
# repository read files. pandas and scipy are no dependencies, and would raise the version of numpy.
SAME := $(addprefix unit/,model pilot $(addprefix engine/,pilots policy tasks why) \
	$(addprefix test_,layers.py repository.py reference.py references.py documents.py folders.py pilot_zip.py too_old_python.py)) \
	$(addprefix property/test_,chunks.py queue_machine.py quota.py rangeset.py share.py shell_quote.py task.py)
test-oldest: ## Run the tests that depend on dependencies with the oldest that are allowed
	@scripts/setup_venv.sh $(OLDEST) requirements-oldest.lock
	$(OLDEST)/bin/pytest -q -n 2 --dist worksteal tests/unit tests/property tests/contract tests/paper tests/scenario \
		tests/integration/test_executor_points.py $(addprefix --ignore=tests/,$(SAME)) --ignore=tests/property/test_assign.py \
		--ignore=tests/unit/bench/test_assignment.py -k "not pandas" $(ARGS)

# PIP_NO_COMPILE=no is how pip is told not to compile what it installs: most of it is never imported.
test-ecosystem: ## Run the tests with joblib, scikit-learn, notebooks and Snakemake, in an environment of their own
	@PIP_NO_COMPILE=no scripts/setup_venv.sh $(ECOSYSTEM) requirements-ecosystem.lock
	$(ECOSYSTEM)/bin/pytest -q tests/ecosystem $(ARGS)

check: $(STAMP) ## Check format, lint, types and the rules of the repository
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	@$(MAKE) --no-print-directory -j 2 --output-sync=target check-types check-rules

# Beside each other, because the types take one core for a minute. The collection of all tests leaves the byte code for `make
# test`, each process of which would otherwise make all of it.
check-types: $(STAMP)
	.venv/bin/mypy $(TYPED)
check-rules: $(STAMP)
	@.venv/bin/pytest -q --collect-only tests >.venv/collected || { cat .venv/collected; exit 1; }
	.venv/bin/pytest -q tests/unit/test_layers.py tests/unit/test_folders.py tests/unit/test_repository.py tests/unit/test_reference.py \
		tests/unit/test_references.py tests/unit/test_documents.py tests/unit/test_import_budget.py

format: $(STAMP) ## Format the code and apply the safe lint fixes
	.venv/bin/ruff check --fix-only --exit-zero --quiet .
	.venv/bin/ruff format .

bench: $(STAMP) ## Run the benchmarks
	.venv/bin/python -m bench $(ARGS)

# PEERS=... is where the peers are installed; ARGS="--systems dask,shoal --scale 0.01 --rounds 1" as in bench/peers/measure.py:
# such a part is printed, and only a complete run rewrites the page.
bench-peers: $(STAMP) ## Install Shoal's peers, measure them and Shoal side by side, write docs/benchmarks.md (25 minutes)
	.venv/bin/python -m bench.peers.install --peers $(PEERS)
	.venv/bin/python -m bench.peers.measure --peers $(PEERS) $(ARGS); status=$$?; \
		.venv/bin/python -m bench.peers.table --last && exit $$status

prove: $(STAMP) ## Run all tests at full length (SHOAL_PROVE=1): many seeds, long runs
	SHOAL_PROVE=1 $(PYTEST) --timeout=3600 tests $(ARGS)

# uv keeps versions that still fit; UPGRADE=1 takes the newest. No header and no index lines: nothing of this
# machine goes into the file. One lock serves every platform and every Python from 3.11 on. The second has the lowest
# version that pyproject.toml allows of each direct dependency, and the test tools of the first; the third has what
# `make test-ecosystem` needs, in the versions of the first where both have it.
UV_COMPILE = "$$tmp/bin/uv" pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links
TEST_TOOLS := pytest|pytest-timeout|pytest-xdist|hypothesis|hatchling|editables

lock: ## Write the locks anew from pyproject.toml (UPGRADE=1 takes newer versions)
	@tmp=$$(mktemp -d) && trap 'rm -rf "$$tmp"' EXIT && \
	$(or $(PYTHON),python3) -m venv "$$tmp" && \
	"$$tmp/bin/python" -m pip -qq --disable-pip-version-check install uv && \
	$(UV_COMPILE) --extra dev $(if $(UPGRADE),--upgrade) --output-file requirements.lock pyproject.toml && \
	sed -nE 's/^(($(TEST_TOOLS))==[^ ]+) .*/\1/p' requirements.lock >"$$tmp/tools.in" && \
	$(UV_COMPILE) --resolution lowest-direct --upgrade --output-file requirements-oldest.lock \
		pyproject.toml "$$tmp/tools.in" && \
	$(UV_COMPILE) --extra ecosystem --constraint requirements.lock $(if $(UPGRADE),--upgrade) \
		--output-file requirements-ecosystem.lock pyproject.toml

clean: ## Remove .venv, caches and everything built
	rm -rf .venv .venv.lock $(OLDEST) $(OLDEST).lock $(ECOSYSTEM) $(ECOSYSTEM).lock .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build bench/out
	find . -name .git -prune -o -name '*.pyz' -type f -exec rm -f {} +
	find . -name .git -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp holds the path of the repository, so a copied or moved .venv is made again.
$(STAMP): requirements.lock pyproject.toml scripts/setup_venv.sh
	@scripts/setup_venv.sh
ifneq ($(shell cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): FORCE
endif
