# Everything a developer runs. `make demo` and `make test` need Python 3.11+ and make, nothing else.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TOOLS := $(VENV)/tools
COMPOSE = $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
PROTOS := $(shell find protos/reprieve -name '*.proto' 2>/dev/null)
# Tests start hundreds of processes: let the first compile the modules for all others.
unexport PYTHONDONTWRITEBYTECODE
# Twice as many as CI's cores, for most tests wait for processes that they have started.
WORKERS ?= 4
# A file is one worker's, for its fixtures; files are in the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder
# With LANGUAGES=1 the tests of test-languages, too: they share the cores to the end.
MARKED := $(if $(LANGUAGES),-m 'not long')

# Wheels only, and only those that a lock names: pip builds nothing but Reprieve itself.
INSTALL := -m pip install --quiet --disable-pip-version-check --only-binary :all: --require-hashes
# Reprieve is built with the installed packages, because these are locked.
BUILD := -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .

.PHONY: help setup protos lock docs pictures sbom check contract format kernels collect test test-long torture test-languages bench bench-compare bench-scheduler bench-queue bench-eviction bench-autoscaler bench-forks demo up down clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 18

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "reprieve needs Python 3.11 or newer; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL) --requirement requirements/pip.txt # faster than the pip that came with Python

$(VENV)/.dependencies: requirements/dev.txt | $(BIN)/python
	$(BIN)/python $(INSTALL) --requirement $<
	@touch $@

$(STAMP): $(VENV)/.dependencies pyproject.toml hatch_build.py $(PROTOS)
	$(BIN)/python $(BUILD)
	@touch $@

setup: $(STAMP) ## make .venv with reprieve and its development tools

protos: $(VENV)/.dependencies ## generate the stubs again (done by setup too)
	$(BIN)/python $(BUILD)

$(TOOLS)/.installed: requirements/tools.txt | $(BIN)/python
	$(BIN)/python -m venv $(TOOLS)
	$(TOOLS)/bin/python $(INSTALL) --requirement $<
	@touch $@

# One lock for all systems and Pythons (docs/decisions/0004-dependencies.md). It names no package index.
COMPILE = $(TOOLS)/bin/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
  --generate-hashes --no-emit-index-url --custom-compile-command 'make lock'
BUILD_REQUIRES = $(BIN)/python -c 'import tomllib; \
  print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")'

lock: $(TOOLS)/.installed ## write requirements/*.txt again; newer versions only with UPGRADE=1
	$(COMPILE) $(if $(UPGRADE),--upgrade) --group pip --output-file requirements/pip.txt
	$(COMPILE) $(if $(UPGRADE),--upgrade) --group tools --output-file requirements/tools.txt
	$(BUILD_REQUIRES) | $(COMPILE) $(if $(UPGRADE),--upgrade) pyproject.toml --group dev - \
	  --output-file requirements/dev.txt
	$(BUILD_REQUIRES) | $(COMPILE) --no-annotate --constraint requirements/dev.txt - \
	  --output-file requirements/build.txt
	$(COMPILE) --no-annotate --constraint requirements/dev.txt pyproject.toml \
	  --output-file requirements/run.txt

docs: $(STAMP) ## build the documentation site, dist/site/index.html; it needs no network
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

pictures: $(STAMP) ## make the pictures of README.md again; needs chromium and chromium-driver
	$(BIN)/python -m docs.make_pictures

sbom: $(STAMP) $(TOOLS)/.installed ## list what Reprieve consists of in dist/reprieve.cdx.json (CycloneDX)
	@mkdir -p dist
	$(TOOLS)/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/environment.cdx.json $(BIN)/python
	$(TOOLS)/bin/python requirements/sbom.py dist/environment.cdx.json dist/reprieve.cdx.json

check: $(STAMP) ## ruff, mypy strict, buf: the protos, and whether they break what is frozen
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/buf lint protos
	$(BIN)/buf breaking protos --against protos/v1beta1.binpb
	@$(BIN)/buf build protos --path protos/reprieve --output - | cmp -s - protos/v1beta1.binpb || \
	  { echo "protos/v1beta1.binpb is not what the protos say: make contract" >&2; exit 1; }
	$(BIN)/python docs/make_api.py --check

contract: $(STAMP) ## freeze the protos with what was added, and write their reference
	$(BIN)/buf breaking protos --against protos/v1beta1.binpb
	$(BIN)/buf build protos --path protos/reprieve --output protos/v1beta1.binpb
	$(BIN)/python docs/make_api.py

format: $(STAMP) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

kernels: $(STAMP) ## compile them once for all processes: 20 s after an install
	$(BIN)/python -c "from services.scheduler.core.session.warm_up import warm_up; warm_up()"
	$(BIN)/python -c "from services.autoscaler.core.estimator.packing_kernel import warm_up; warm_up()"

collect: $(STAMP) ## compile the tests once for all of pytest's workers
	$(BIN)/python -m pytest --collect-only --quiet --quiet

test: kernels ## all tests but the long ones, and with LANGUAGES=1 but those of test-languages
	$(PYTEST) $(MARKED)

test-long: $(STAMP) ## the tests that repeat what others do, with more seeds and larger sizes
	$(PYTEST) -m long

torture: $(STAMP) ## kills, cuts, mutated files and checkpoints, a million messages, hostile services, an hour's soak: four hours (COUNT=, SEED=)
	$(BIN)/python -m tests.torture.kills --count $(or $(COUNT),200) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.cuts --count $(or $(COUNT),50) --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.crashes --count 3 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.flips --count 300 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.files --count 10000 --seed $(or $(SEED),1) --workers 2
	$(BIN)/python -m tests.torture.forks --count 75 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.states --count 20000 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.messages --count 1000000 --seed $(or $(SEED),1) --workers 2
	$(BIN)/python -m tests.torture.stateful --count 50000 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.hostile --count 117 --seed $(or $(SEED),1)
	$(BIN)/python -m tests.torture.soak --for 1h

test-languages: $(STAMP) ## examples in JavaScript, Go and C++, generated code, an OTLP receiver; needs node, npm, go, g++, protoc
	$(BIN)/python -m pytest -n 2 --dist loadfile -m languages --durations 5 tests/languages

demo: $(STAMP) ## replay the two bundled traces and show what happened
	$(BIN)/reprieve replay examples/traces/nginx-preemption.jsonl --run runs/demo-nginx --force
	$(BIN)/reprieve get pods runs/demo-nginx -w -o wide
	$(BIN)/reprieve replay examples/traces/four-tiers.ktr --run runs/demo-four-tiers --force

BENCH = $(if $(QUICK),--quick) $(if $(MILLION),--million) $(if $(ROWS),--rows $(ROWS)) $(ARGS)

bench: $(STAMP) ## replay workloads and print rates, CPU, memory (QUICK=1, MILLION=1, ROWS=, ARGS=)
	$(BIN)/python -m benchmarks.bench $(BENCH)

bench-compare: $(STAMP) ## this folder beside another commit (BASE=COMMIT, and as for bench)
	$(BIN)/python -m benchmarks.compare $(BASE) $(BENCH)

bench-scheduler: $(STAMP) ## what decisions cost, plain and with constraints, and how that grows with nodes and shapes
	$(BIN)/python -m benchmarks.scheduler_core
	$(BIN)/python -m benchmarks.scheduler_growth
	$(BIN)/python -m benchmarks.scheduler_constraints 1000
	$(BIN)/python -m benchmarks.scheduler_constraints 5000

bench-queue: $(STAMP) ## what the queue costs from 1,000 to 1,000,000 pods
	$(BIN)/python -m benchmarks.queue_scale

bench-eviction: $(STAMP) ## what eviction costs on 5,000 calm nodes
	$(BIN)/python -m benchmarks.eviction_fleet

bench-autoscaler: $(STAMP) ## what scans cost with 1,000 pending pods, and when nothing has changed
	$(BIN)/python -m benchmarks.autoscaler_scan

bench-forks: $(STAMP) ## what late what-ifs cost beside whole runs (TRACE=, ARGS=)
	$(BIN)/python -m benchmarks.late_forks $(or $(TRACE),examples/traces/four-tiers.ktr) $(ARGS)

up: ## the four services in containers, on 127.0.0.1:50051 to 50054
	$(COMPOSE) up --build --detach

observe: ## the same with OpenTelemetry Collector, Jaeger, Prometheus and Grafana (docs/observe.md)
	REPRIEVE_OTLP_ENDPOINT=http://collector:4317 $(COMPOSE) --profile observe up --build --detach

down: ## stop and remove them
	$(COMPOSE) --profile observe down

clean: ## remove what the other targets made
	rm -rf $(VENV) gen protos/google runs dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
