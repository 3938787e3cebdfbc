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
STATIC := check-format check-lint check-types check-imports check-code check-workflows

export ARGS

# Otherwise each of the many processes of the tests would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

PORT ?= 8000
COMPONENT ?= deploy/examples/newsroom/newsroom

.PHONY: help install tools programs engine cluster cluster-down version image dist run test test-servers test-frameworks \
	test-image test-cluster test-container test-all proof chart bench docs check static $(STATIC) lock fmt clean

help:  ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' Makefile | expand -t 12

install: $(INSTALLED)  ## install the locked dependencies and both packages into .venv; PYTHON=3.12 chooses the Python of a new one

$(INSTALLED): requirements.lock requirements-uv.lock $(UV) library/pyproject.toml service/pyproject.toml \
		library/src/podwright/_version.py
	$(UV) venv --quiet --allow-existing --python '$(PYTHON)' .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e library -e service
	@touch $@

tools:  ## install what tests of the tiers need besides Python, as root on Debian: chromium, Go, nginx, PgBouncer, PostgreSQL
	@deploy/tools.sh install chromium go nginx pgbouncer postgresql

# What the tests of each tier need.
SERVERS := checkov helm helm3 node-client prometheus promtool registry
IMAGES := collector jaeger prometheus registry
CLUSTER := collector extras helm3 jaeger kubernetes operator resources
programs: install  ## build what tests of the tiers need besides, once for all checkouts; with Go, in many minutes
	@deploy/tools.sh build actionlint $(sort $(SERVERS) $(CLUSTER))

engine:  ## install and start a Docker engine and provide the base image, if they are missing; as root on Debian
	@deploy/engine.sh

cluster: engine  ## start a Kubernetes cluster, as root on Linux, and print its kubeconfig
	@deploy/tools.sh build kubernetes
	@deploy/cluster.sh up

cluster-down:  ## delete that cluster
	@deploy/cluster.sh down

VERSION := $(shell sed -nE 's/^__version__ = "(.*)"/\1/p' library/src/podwright/_version.py)
version:  ## print the version
	@echo $(VERSION)

FLAVOUR ?= slim
IMAGE ?= podwright:$(FLAVOUR)
image:  ## build the image podwright:FLAVOUR, slim (default) or full; ARGS="--push" passes options to docker build
	@docker=$$(deploy/engine.sh docker) && base=$$(deploy/engine.sh base) && "$$docker" build --tag $(IMAGE) \
		--build-arg BASE_IMAGE="$$base" --build-arg FLAVOUR=$(FLAVOUR) --build-arg VERSION=$(VERSION) \
		--build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || true) $(ARGS) .

dist: docs  ## build the files of a release in dist/: wheels, chart and documentation
	rm -rf dist && mkdir dist
	for package in library service; do (cd $$package && ../$(BIN)/python -m hatchling build -t wheel -d ../dist); done
	deploy/tools.sh build helm3
	$$(deploy/tools.sh path helm3) package helm/podwright --destination dist
	tar -czf dist/podwright-docs-$(VERSION).tar.gz --transform 's,^site,podwright-docs-$(VERSION),' site

run: install  ## serve the example newsroom with an offline model; PORT=8000, PODWRIGHT_MODEL=provider/name
	@printf '%s\n' 'Try from another shell:' '' \
		"  curl -s localhost:$(PORT)/run -H 'content-type: application/json' -d '{\"input\": \"the moon\"}'" \
		"  curl -s localhost:$(PORT)/info" \
		"  curl -s localhost:$(PORT)/run-blueprint -H 'content-type: application/json' -d '{\"type\": \"agent\"," \
		"    \"blueprint\": {\"name\": \"poet\", \"instructions\": \"Write one line.\"," \
		"    \"config\": {\"model\": \"offline/echo\", \"max_loops\": 1}, \"tools\": []}, \"input\": \"the moon\"}'" ''
	@PODWRIGHT_MODEL="$${PODWRIGHT_MODEL-offline/echo}" exec $(BIN)/podwright serve $(COMPONENT) --port $(PORT)

PYTEST := $(BIN)/pytest --dist loadfile
test: install  ## run the tests that need nothing but Python; ARGS="-k name" selects some
	$(PYTEST) -n auto --maxprocesses 8 $(ARGS)

# The tests of the other tiers wait for processes and pods most of the time, so more of them run than there are cores.
test-servers: install  ## run those with processes, PostgreSQL, PgBouncer, nginx, Node and a browser
	@deploy/tools.sh install chromium nginx pgbouncer postgresql
	@deploy/tools.sh build $(SERVERS)
	$(PYTEST) -n 4 -m servers $(ARGS)

test-frameworks: install  ## run those with agents of other frameworks, which are installed apart
	@deploy/tools.sh build frameworks
	$(PYTEST) -n 2 -m frameworks $(ARGS)

test-image: install engine  ## run those with images and containers
	@deploy/tools.sh install chromium
	@deploy/tools.sh build $(IMAGES)
	$(PYTEST) -n 4 -m image $(ARGS)

test-cluster: install engine  ## run those on Kubernetes, in a cluster of their own or that of PODWRIGHT_TEST_KUBECONFIG
	@deploy/cluster.sh which
	@deploy/tools.sh build $(CLUSTER)
	$(PYTEST) -n 4 -m cluster $(ARGS)

# As in a new clone, and with the programs that Go has built. The base has another Python than many machines.
test-container: install engine  ## run `make test test-servers` in a container of the image's base, as a user without network
	@deploy/tools.sh build helm prometheus promtool registry
	docker=$$(deploy/engine.sh docker); git ls-files -z | tar --null --files-from - --create \
		| "$$docker" build --quiet --tag podwright/tests --file tests/container/Dockerfile -; \
	trap '"$$docker" image rm --force podwright/tests >/dev/null' EXIT; \
	"$$docker" run --rm --init --network none --env CI \
		--volume "$$(dirname "$$(dirname "$$(deploy/tools.sh path promtool)")"):/home/tester/.cache/podwright:ro" \
		podwright/tests make test test-servers ARGS="$$ARGS"

test-all:  ## run all of them
	@$(MAKE) --no-print-directory --keep-going test test-servers test-frameworks test-image test-cluster \
		test-container

proof: install engine  ## run the long tests: thousands of cases, runs and requests, restarts and outages
	@deploy/tools.sh install chromium nginx pgbouncer postgresql
	@deploy/tools.sh build $(sort $(SERVERS) $(CLUSTER))
	@deploy/cluster.sh which
	$(BIN)/pytest -s -m proof -o faulthandler_timeout=1800 $(ARGS)

chart: install  ## update the generated files in helm/podwright: README, copies, two examples, and renders
	$(BIN)/python deploy/chart.py

bench: install  ## run the benchmarks and update docs/benchmarks.md
	PYTHONPATH=. $(BIN)/python tests/bench/run.py

check: install  ## the checks of the code, and `make test`
	@$(MAKE) --no-print-directory --keep-going static test

static: install  ## check format, lint, types, imports and workflows
	@$(MAKE) --no-print-directory --keep-going --output-sync --jobs=2 $(STATIC)

check-format: install
	$(BIN)/ruff format --check

check-lint: install
	$(BIN)/ruff check

check-types: install
	$(BIN)/pyright

check-imports: install
	$(BIN)/lint-imports

check-code: install
	$(BIN)/python deploy/check_code.py

check-workflows:
	@if actionlint=$$(deploy/tools.sh path actionlint); then "$$actionlint" -shellcheck= -pyflakes=; \
		sed -e '/^```yaml$$/,/^```$$/!d' -e '/^```/d' -e 's|OWNER/podwright@REF|./|' docs/github-action.md \
		>.tools/of-the-docs.yml; "$$actionlint" -shellcheck= -pyflakes= .tools/of-the-docs.yml; \
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
	$(COMPILE) --upgrade --no-emit-package podwright --group dev --group build --extra litellm --extra background --extra b3 --extra mcp --extra testing \
		-o requirements.lock library/pyproject.toml service/pyproject.toml
	printf '%s\n' checkov | $(COMPILE) --upgrade -o requirements-checkov.lock -
	$(COMPILE) --upgrade --no-emit-package podwright -o tests/frameworks/requirements.lock library/pyproject.toml \
		service/pyproject.toml deploy/examples/frameworks/*/requirements.txt
	printf '%s\n' uv hatchling editables | $(COMPILE) --upgrade -o requirements-uv.lock -
	echo uv | $(COMPILE) -c requirements-uv.lock -o service/src/podwright_service/images/requirements-uv.lock -
	$(COMPILE) -c requirements.lock -o service/src/podwright_service/images/requirements-mcp.lock \
		service/src/podwright_service/images/requirements-mcp.txt
	$(COMPILE) -c requirements.lock --no-emit-package podwright \
		-o deploy/image/requirements-slim.lock library/pyproject.toml service/pyproject.toml
	$(COMPILE) -c requirements.lock --no-emit-package podwright --extra litellm --extra background --extra b3 --extra mcp \
		-o deploy/image/requirements-full.lock library/pyproject.toml service/pyproject.toml

clean:  ## remove generated files
	rm -rf .venv .uv .tools .cache .site site dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
