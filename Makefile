SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

UV := deploy/setup.sh
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTHON := >=3.11
# Younger releases are not locked, because most malicious ones are withdrawn within days.
MIN_AGE := 7 days
COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header \
	--no-emit-index-url --no-emit-find-links --exclude-newer '$(MIN_AGE)'
STATIC := check-format check-lint check-types check-imports check-internals check-workflows

# With retries, and waiting for another package manager.
APT := DEBIAN_FRONTEND=noninteractive apt-get --quiet=2 -o Acquire::Retries=3 -o DPkg::Lock::Timeout=120

# Otherwise each of the many processes of the tests would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

PORT ?= 8000
COMPONENT ?= deploy/examples/newsroom/newsroom

.PHONY: help install tools programs engine cluster cluster-down version image dist run test proof chart bench docs check static $(STATIC) lock fmt clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 12

install: $(INSTALLED)  ## install the locked dependencies and both packages into .venv; PYTHON=3.12 chooses the Python of a new one

$(INSTALLED): requirements.lock requirements-uv.lock $(UV) library/pyproject.toml service/pyproject.toml \
		library/src/podwright/_version.py
	$(UV) venv --quiet --allow-existing --python '$(PYTHON)' .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e library -e service
	@touch $@

tools:  ## install chromium, Go, nginx and PostgreSQL, which some checks need; as root on Debian
	@packages=(); missing() { ! command -v "$$1" > /dev/null; }; \
	if missing chromium; then packages+=(chromium); fi; \
	if missing go; then packages+=(golang-go); fi; \
	if missing nginx; then packages+=(nginx-light); fi; \
	if missing pg_ctl && ! ls /usr/lib/postgresql/*/bin/pg_ctl > /dev/null 2>&1; then packages+=(postgresql); fi; \
	test $${#packages[@]} = 0 \
		|| { $(APT) update && $(APT) install --no-install-recommends "$${packages[@]}" > /dev/null; } \
		|| { echo "tools: could not install $${packages[*]}; that needs root and Debian" >&2; exit 1; }

programs:  ## build the cluster and what watches it from their Go modules, once for all checkouts; takes minutes
	@for program in kubectl helm operator jaeger collector; do deploy/tools.sh $$program > /dev/null; done

engine:  ## install and start a Docker engine and provide the base image, if they are missing; as root on Debian
	@deploy/engine.sh

VERSION := $(shell sed -nE 's/^__version__ = "(.*)"/\1/p' library/src/podwright/_version.py)
version:  ## print the version
	@echo $(VERSION)

cluster: engine  ## start a Kubernetes cluster, as root on Linux with Go, or use that of KUBECONFIG; print its kubeconfig
	@deploy/cluster.sh up

cluster-down:  ## delete that cluster
	@deploy/cluster.sh down

FLAVOUR ?= slim
IMAGE ?= podwright:$(FLAVOUR)
image:  ## build the image podwright:FLAVOUR, slim (default) or full; ARGS="--push" passes options to docker build
	@docker=$$(deploy/engine.sh docker) && "$$docker" build --tag $(IMAGE) --build-arg FLAVOUR=$(FLAVOUR) \
		--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || true) $(ARGS) .

dist: docs  ## build the files of a release in dist/: wheels, chart and documentation
	rm -rf dist && mkdir dist
	for package in library service; do (cd $$package && ../$(BIN)/python -m hatchling build -t wheel -d ../dist); done
	$$(deploy/tools.sh helm3) package helm/podwright --destination dist
	tar -czf dist/podwright-docs-$(VERSION).tar.gz --transform 's,^site,podwright-docs-$(VERSION),' site

run: install  ## serve the example newsroom with an offline model; PORT=8000, PODWRIGHT_MODEL=provider/name
	@printf '%s\n' 'Try from another shell:' '' \
		"  curl -s localhost:$(PORT)/run -H 'content-type: application/json' -d '{\"input\": \"the moon\"}'" \
		"  curl -s localhost:$(PORT)/info" \
		"  curl -s localhost:$(PORT)/run-blueprint -H 'content-type: application/json' -d '{\"type\": \"agent\"," \
		"    \"blueprint\": {\"name\": \"poet\", \"instructions\": \"Write one line.\"," \
		"    \"config\": {\"model\": \"offline/echo\", \"max_loops\": 1}, \"tools\": []}, \"input\": \"the moon\"}'" ''
	@PODWRIGHT_MODEL="$${PODWRIGHT_MODEL-offline/echo}" exec $(BIN)/podwright serve $(COMPONENT) --port $(PORT)

# Two more than cores, because some tests wait for pods; tests/conftest.py says which files come first.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
test: install  ## run the tests; ARGS="-k name" selects some
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

proof: install  ## run the long versions of some tests: thousands of cases, runs and requests
	PROOF=1 $(BIN)/pytest -n 0 -s -o faulthandler_timeout=1800 $(ARGS) $(addprefix tests/service/test_,schemathesis.py ledger.py rolling_restart.py disconnects.py \
		remote_restarts.py background_stops.py background_kill.py) $(addprefix tests/cluster/test_,nothing_fails.py install.py)

chart: install  ## update the generated files in helm/podwright: README, copies, two examples, and renders
	$(BIN)/python deploy/chart.py

bench: install  ## run the benchmarks and update docs/benchmarks.md
	PYTHONPATH=. $(BIN)/python tests/bench/run.py

check: install  ## everything that must pass before a merge: format, lint, types, imports, workflows, tests
	@$(MAKE) --no-print-directory --keep-going --jobs=2 test $(STATIC)

static: install  ## the checks without the tests
	@$(MAKE) --no-print-directory --keep-going --output-sync --jobs=2 $(STATIC)

check-format: install
	$(BIN)/ruff format --check

check-lint: install
	$(BIN)/ruff check

check-types: install
	$(BIN)/pyright

check-imports: install
	$(BIN)/lint-imports

check-internals: install
	$(BIN)/python deploy/check_internals.py

check-workflows:
	@if actionlint=$$(deploy/tools.sh actionlint); then "$$actionlint" -shellcheck= -pyflakes=; \
		else echo 'check-workflows: skipped' >&2; test -z "$${CI-}"; fi

docs: install  ## build the documentation site in site/; a broken link, reference or docstring is an error
	$(BIN)/python deploy/site.py
	@output=$$($(BIN)/zensical build --strict --clean 2>&1) || { echo "$$output"; exit 1; }; echo "$$output"; \
	! grep --quiet --extended-regexp '^(griffe|mkdocstrings):' <<< "$$output"

fmt: install  ## format, and apply automatic fixes
	$(BIN)/ruff format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

lock:  ## update all locks to the newest releases that are old enough
	$(COMPILE) --upgrade --no-emit-package podwright --group dev --group build --extra litellm --extra background --extra testing \
		-o requirements.lock library/pyproject.toml service/pyproject.toml
	printf '%s\n' checkov | $(COMPILE) --upgrade -o requirements-checkov.lock -
	printf '%s\n' uv hatchling editables | $(COMPILE) --upgrade -o requirements-uv.lock -
	echo uv | $(COMPILE) -c requirements-uv.lock -o service/src/podwright_service/images/requirements-uv.lock -
	$(COMPILE) -c requirements.lock --no-emit-package podwright \
		-o deploy/image/requirements-slim.lock library/pyproject.toml service/pyproject.toml
	$(COMPILE) -c requirements.lock --no-emit-package podwright --extra litellm --extra background \
		-o deploy/image/requirements-full.lock library/pyproject.toml service/pyproject.toml

clean:  ## remove generated files
	rm -rf .venv .uv .tools .cache .site site dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
