# Two commands do all the set-up: `make demo` runs the loop, `make test` tests it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := core exporter bridge predictor grafana lab tests benchmarks examples
# Two stages: what `make demo` runs on, and the tools for development beside it.
RUNS := $(VENV)/.runs
STAMP := $(VENV)/.installed
COLLECTED := $(VENV)/.collected
CUPTI := $(VENV)/cupti
STEP := PYTHONPATH=core $(PYTHON) -m release.step
# Python compiles a module when it is first imported; compiling all of them here would take half of the time.
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile
# A lock names every package, so pip has nothing to resolve; its resolver (before 24) prefers a newer release for `name[extra]`.
PIP_LOCKED := $(PIP_INSTALL) --no-deps --require-hashes

# Many tests wait, so more of them run at once than there are cores: five on two. Each worker may start a Kafka (0.5 GiB).
WORKERS ?= $(shell n=$$(( $$(nproc) * 5 / 2 )); echo $$(( n < 16 ? n : 16 )))
FAST_WORKERS ?= $(shell nproc)
# A file's tests stay in one process, in the order that tests/conftest.py gives, and share its servers.
PARALLEL := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Python keeps its bytecode: the services that tests start are ready sooner, and each worker collects in half the time.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install machine-code demo test test-fast coverage gpu nightly lint format fuzz bench bench-peers docs site lock clean

help:  ## what each target does
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-11s %s\n", $$1, $$2}'

$(RUNS): pyproject.toml requirements-run.lock hatch_build.py $(wildcard exporter/kernelcast/probe/cupti/native/*)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "kernelcast needs Python 3.11 or later; $(PYTHON) is older: make PYTHON=python3.12 …" >&2; exit 2; }
	@$(STEP) "making $(VENV)" -- $(PYTHON) -m venv $(VENV)
	@$(STEP) "installing the packages that kernelcast uses" -- $(PIP_LOCKED) -r requirements-run.lock
	@$(STEP) "installing kernelcast" -- $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(STAMP): $(RUNS) requirements.lock
	@$(STEP) "installing the tools for development" -- $(PIP_LOCKED) -r requirements.lock
	@touch $@

# Too large for each developer; tests walk with them over our records and those of an H100.
$(CUPTI): tests/service/probe/cupti/wheels.txt | $(STAMP)
	@$(STEP) "fetching NVIDIA's libraries for tests" -- $(BIN)/python -m pip download --quiet --no-deps --require-hashes --dest $@ -r $<
	@touch $@

install: $(STAMP)  ## .venv with everything that needs no GPU

demo: $(RUNS)  ## the whole loop on the embedded broker; ARGS="--source kineto:FILE --duration 60"
	@$(BIN)/kernelcast demo $(ARGS)

# In a new clone one process compiles the tests' bytecode, beside the machine code; else each worker compiles all of it.
machine-code: install
	@[ $(COLLECTED) -nt $(STAMP) ] || $(BIN)/python -m pytest --collect-only --quiet >/dev/null 2>&1 & \
		$(BIN)/kernelcast compile; code=$$?; wait; touch $(COLLECTED); exit $$code

test: machine-code  ## unit and service tests; ARGS="-k bridge", WORKERS=1
	$(BIN)/python -m pytest $(PARALLEL) --durations 20 $(ARGS)

test-fast: install  ## unit tests without machine code, processes and brokers: a minute in a fresh clone
	$(BIN)/python -m pytest --fast --numprocesses $(FAST_WORKERS) --dist loadfile --durations 10 $(ARGS) tests/unit

coverage: install  ## branch coverage of the fast tests, which fails below its floor; ARGS="--cov-report html"
	@$(BIN)/python -m tests.support.compiled_functions
	$(BIN)/python -m pytest --fast --numprocesses $(FAST_WORKERS) --dist loadfile --cov --cov-report term:skip-covered $(ARGS) tests/unit

gpu: install  ## a day on this machine's NVIDIA GPU, to docs/gpu/<date>-<model>.jsonl; exits with 2 where there is none
	$(BIN)/python -m tests.gpu.day --publish docs/gpu $(ARGS)

nightly: machine-code $(CUPTI)  ## what takes hours: thousands of examples, fuzzers, faults, audit; ARGS="--only wheel"
	$(BIN)/python -m tests.nightly.run --workers $(WORKERS) $(ARGS)

lint: install  ## style, types, imports, dependencies, generated files
	@$(BIN)/python -m pip check --disable-pip-version-check
	$(BIN)/ruff check --no-cache $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/basedpyright
	$(BIN)/lint-imports
	$(BIN)/python -m lab.grafana generate --check
	@$(BIN)/python -m kernelcast.wire.catalogue.document | diff -u docs/metrics.md - || \
		{ echo "docs/metrics.md differs from the catalogue: make docs" >&2; exit 1; }
	@$(BIN)/python -m kernelcast.wire.catalogue.diagnosis.document | diff -u docs/diagnosis.md - || \
		{ echo "docs/diagnosis.md differs from the catalogue: make docs" >&2; exit 1; }
	@$(BIN)/python -m kernelcast.probe.document | diff -u docs/api.md - || \
		{ echo "docs/api.md differs from the docstrings: make docs" >&2; exit 1; }
	@$(BIN)/python -m lab.grafana runbooks | diff -u docs/runbooks.md - || \
		{ echo "docs/runbooks.md differs from the rules: make docs" >&2; exit 1; }
	@$(BIN)/python -m release.verified --check

format: install  ## rewrite to the project's style
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

fuzz: install  ## the decoder and every parser under mutated messages; ARGS="--inputs 1000000 --only influx"
	$(BIN)/python -m tests.fuzz.run $(ARGS)

bench: install  ## every figure with its peer in the same run
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-peers: install  ## the bridge beside other bridges (needs Java, Maven, Go); ARGS="--series 10000"
	$(BIN)/python -m benchmarks.peers $(ARGS)

docs: install  ## generated documents, dashboards and rules
	$(BIN)/python -m kernelcast.wire.catalogue.document > docs/metrics.md
	$(BIN)/python -m kernelcast.wire.catalogue.diagnosis.document > docs/diagnosis.md
	$(BIN)/python -m kernelcast.probe.document > docs/api.md
	$(BIN)/python -m lab.grafana generate
	$(BIN)/python -m lab.grafana runbooks > docs/runbooks.md
	$(BIN)/python -m release.verified

site: install  ## the documentation as a site in build/site; fails at a warning, such as a dead link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

UV_COMPILE := uv pip compile pyproject.toml --extra all --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-header --quiet

lock: install  ## both locks from pyproject.toml (needs uv)
	$(UV_COMPILE) --group dev --output-file requirements.lock
	$(UV_COMPILE) --group build --constraint requirements.lock --output-file requirements-run.lock

clean:  ## remove the files that the targets made
	find $(SOURCES) -name '*.nb[ic]' -delete
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .coverage .hypothesis .import_linter_cache
