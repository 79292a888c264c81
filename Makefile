# One door. `make help` lists what is behind it; a machine needs python3 (3.11 or newer) and make, nothing else.

PYTHON ?= python3
VENV   := .venv
RUN    := $(VENV)/bin/python -m
READY  := $(VENV)/.ready
# Whoever names a Python has chosen.
AS_IS  := $(if $(filter file,$(origin PYTHON)),,--as-is)
ARGS   ?=
# Most tests wait for leases and servers, so they run side by side, more than there are cores (tests/conftest.py says how
# many); each worker has a control plane of its own.
WORKERS ?= auto
# So do most tests with real pods; each of these has a node of its own. Somebody's cluster, IMAGE=, is one.
NODES ?= $(if $(IMAGE),0,3)
# Of a worker that crashes xdist hands on what it had done as well, and waits for that for ever: the run ends instead.
DISTRIBUTION := --max-worker-restart 0 --dist loadfile --no-loadscope-reorder
# The order of the tests: the same in each run, so that what fails can be tried again; ORDER=random for another.
ORDER ?= 3151281236
CHECK = $(RUN) ruff check --quiet . && $(RUN) ruff format --check --quiet . && $(RUN) mypy --no-error-summary && \
  { said=$$($(VENV)/bin/lint-imports --no-logo) || { echo "$$said"; false; }; } && \
  $(VENV)/bin/python .ci/licences.py requirements-dev.txt
# Every test file is imported once while the code is checked: each worker of the tests would compile them all otherwise,
# and what they import. What fails here fails there, and is told there.
COMPILE = $(RUN) pytest -p no:randomly --collect-only --quiet >/dev/null 2>&1
VERSION = $(shell sed -n 's/^VERSION.*"\(.*\)"$$/\1/p' shardsdk/version.py)
BUILDER ?= docker
# Asks OSV for known vulnerabilities, which `make test` must not hang on: tomorrow there is one more.
AUDIT = $(VENV)/bin/python .ci/audit.py
LOCK = $(RUN) uv pip compile pyproject.toml --extra sharder --universal --python-version 3.11 --generate-hashes \
  --no-emit-index-url --custom-compile-command "make lock" --quiet
# The image: sharder or examples, as the Dockerfile calls them.
TARGET ?= sharder
# The time of all that a build makes: so two builds of one commit on one base give one digest. Docker has no such option.
SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
TIMESTAMP = $(if $(filter podman buildah,$(notdir $(firstword $(BUILDER)))),--timestamp $(SOURCE_DATE_EPOCH))

# Images of Python often set it; then each of the hundreds of programs that tests start would be compiled again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup controlplane helm image node-deps demo test e2e-node unit lowest check fmt lock sbom audit docs kinds monitoring bench simulate fuzz mutants model chaos soak cluster-up cluster-down cluster-status clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(READY): requirements-dev.txt pyproject.toml .ci/environment.py
	@$(PYTHON) .ci/environment.py $(AS_IS) $(VENV) requirements-dev.txt
	@touch $@

setup: $(READY) ## make .venv with the locked dependencies

controlplane: $(READY) ## find or build etcd, kube-apiserver, kube-controller-manager and kubectl (NODE=1: a node's, too)
	@$(RUN) localcluster acquire $(if $(NODE),--node)

helm: $(READY) ## find or build Helm
	@$(RUN) localcluster helm

image: ## build the container image (TARGET=examples for that one; BUILDER=podman or buildah; ARGS= for it)
	@$(BUILDER) build --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) $(TIMESTAMP) --target $(TARGET) \
	  --tag controller-sharding$(patsubst %,-%,$(filter-out sharder,$(TARGET))):$(VERSION) $(ARGS) .

node-deps: ## install Debian's packages for a node that runs pods (root)
	@.ci/node-deps

demo: $(READY) ## watch shards share, hand over and lose their objects (ASSIGNMENT=Ranges; KEEP=1 leaves it running, LEASE_SECONDS=8 for a slow machine)
	@$(RUN) examples.demo $(if $(KEEP),--keep) $(if $(LEASE_SECONDS),--lease-seconds $(LEASE_SECONDS)) \
	  $(if $(ASSIGNMENT),--assignment '$(ASSIGNMENT)')

test: controlplane helm ## set everything up, check the code and run every test (ORDER=, ARGS= for pytest)
	@$(COMPILE) & $(CHECK); checked=$$?; wait; exit $$checked
	@$(RUN) pytest $(if $(filter-out random,$(ORDER)),--randomly-seed=$(ORDER)) -n $(WORKERS) $(DISTRIBUTION) $(ARGS)

e2e-node: $(READY) helm ## test both charts with real pods (root, after node-deps; or on KUBECONFIG= with IMAGE=)
	@$(RUN) pytest -p no:randomly -n $(NODES) $(DISTRIBUTION) tests/node $(ARGS)

monitoring: controlplane ## ask a real Prometheus what dashboard and alerts ask (Debian's package prometheus; ARGS= for pytest)
	@$(RUN) pytest tests/monitoring $(ARGS)

unit: $(READY) ## run the tests that need no control plane
	@$(RUN) pytest tests/unit tests/properties $(ARGS)

lowest: ## run the same tests with the lowest dependencies that pyproject.toml allows, in build/lowest (ARGS= for pytest)
	@$(PYTHON) .ci/environment.py $(AS_IS) build/lowest requirements-lowest.txt
	@build/lowest/bin/python -m pytest -n $(WORKERS) $(DISTRIBUTION) tests/unit tests/properties $(ARGS)

check: $(READY) ## lint, formatting, types, import rules, licences; known vulnerabilities where OSV answers
	@$(CHECK)
	@$(AUDIT) --if-reachable requirements.txt requirements-dev.txt

fmt: $(READY) ## format the code and mend what can be mended
	@$(RUN) ruff check --fix --quiet . ; $(RUN) ruff format .

lock: $(READY) ## lock the newest dependencies that pyproject.toml allows, and the lowest (requirements-lowest.txt)
	@$(LOCK) --group dev --upgrade --output-file requirements-dev.txt && \
	  $(LOCK) --constraint requirements-dev.txt --no-annotate --output-file requirements.txt
	@$(LOCK) --group dev --upgrade --resolution lowest-direct --no-annotate --output-file requirements-lowest.txt

sbom: ## print what image and wheel are made of, as CycloneDX, from the lock file
	@$(PYTHON) .ci/sbom.py requirements.txt $(VERSION)

audit: $(READY) ## ask OSV, over the network, for known vulnerabilities of all that is locked
	@$(AUDIT) requirements.txt requirements-dev.txt

docs: $(READY) ## print tables from the code into docs/ and build the site with every link checked (site/index.html)
	@$(RUN) docsite && NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build

kinds: controlplane ## write the built-in kinds of shardsdk.kinds from the OpenAPI of the control plane
	@$(RUN) docsite.builtin_kinds

bench: $(READY) controlplane ## measure rates, latencies, CPU and memory next to the raw API server
	@$(RUN) bench $(ARGS)

simulate: $(READY) ## drive sharder and shards through random schedules in virtual time (SEED=, RUNS= or HOURS=, or PLAN=; RANGES=1, BUG=, ARGS=)
	@$(RUN) tests.simulation $(if $(SEED),--seed $(SEED)) $(if $(RUNS),--runs $(RUNS)) $(if $(HOURS),--hours $(HOURS)) \
	  $(if $(PLAN),--plan $(PLAN)) $(if $(RANGES),--ranges) $(if $(BUG),--bug $(BUG)) $(ARGS)

fuzz: $(READY) ## give parsers and webhook hostile input, many times as much of it as `make test` (TIMES=50; ARGS= for pytest)
	@FUZZ_TIMES=$(or $(TIMES),50) $(RUN) pytest tests/fuzz --timeout 0 --hypothesis-show-statistics $(ARGS)

mutants: $(READY) ## plant faults and print which test or schedule finds each into docs/mutants.md (ARGS='--only NAME', --again)
	@$(RUN) tests.mutants $(ARGS)

chaos: controlplane ## break processes, networks, API servers, clocks and rings on the real thing, into docs/reliability.md (ASSIGNMENT=Ranges; ARGS='--only FAULT', --jobs, --seed)
	@$(RUN) tests.chaos $(if $(ASSIGNMENT),--assignment '$(ASSIGNMENT)') $(ARGS); played=$$?; $(RUN) docsite; exit $$played

soak: controlplane ## a fault a minute for HOURS= (1) among OBJECTS= (30000) while all processes are measured (ARGS=--seed 7)
	@$(RUN) tests.chaos.soak --hours $(or $(HOURS),1) --objects $(or $(OBJECTS),30000) $(ARGS); held=$$?; \
	  $(RUN) docsite; exit $$held

cluster-up: $(READY) ## start a control plane and print its KUBECONFIG
	@$(RUN) localcluster up

cluster-down: $(READY) ## stop it
	@$(RUN) localcluster down

cluster-status: $(READY) ## say whether it runs
	@$(RUN) localcluster status

model: $(READY) ## go through every state of the protocol of ranges, right and with each fault, and print docs/model.md
	@$(RUN) tests.model

clean: ## remove caches and build output
	@rm -rf build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv as well (the control plane's cache, outside the checkout, stays)
	@rm -rf $(VENV)
