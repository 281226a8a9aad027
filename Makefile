# The commands of the README are `make serve`, `make check` and `make test`.
PYTHON  ?= python3
VENV    ?= .venv
TORCH   ?= .venv-torch
BIN     := $(VENV)/bin
PORT    ?= 8080
WORKERS ?= 5
IMAGE   ?= compatgate:$(shell sed -n 's/^RELEASE = "\(.*\)"/\1/p' compatgate/__init__.py)
MEMORY  := $(shell test "$$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 8000000 2>/dev/null && echo /dev/shm)
CACHED  := env --unset=PYTHONDONTWRITEBYTECODE
# databases of tests are in memory, where there is room: each commit waits for the disk
PYTEST  := $(CACHED) $(if $(MEMORY),PYTEST_DEBUG_TEMPROOT=$(MEMORY)) $(BIN)/python -m pytest
LOCKED  := --quiet --no-deps --require-hashes --only-binary :all: --requirement
SAMPLE  := facts_hold facts_tables gpu_names gpu_records judge lessons requirements threads vocabulary

.PHONY: serve check test lint style site types facts unit compiled tests format bench canary-cpu system torch docs vocabulary lock newest image clean

serve: $(VENV)/.installed  ## a running gate with the example matrix, on a database in .demo
	@mkdir -p .demo
	@echo "A demonstration on .demo/gate.db. In another terminal, in this folder: . $(BIN)/activate"
	@$(BIN)/compatgate serve --port $(PORT) --database .demo/gate.db --matrix matrix/examples

check: $(VENV)/.installed  ## what needs neither root nor a server: lint, pages, types, unit, a sample of conformance
	$(MAKE) --no-print-directory --jobs=3 style site types unit

test:  ## everything that CI runs; WORKERS processes share the tests
	@echo "make test installs into $(VENV) (1.3 GB)$(if $(CI), and $(TORCH) (7 GB)), and as root with apt what"
	@echo "scripts/install-test-system lists. Without root, what needs it is skipped. The tests then take"
	@echo "twenty minutes on two cores. make check is the quick part: two minutes, and no root."
	$(MAKE) --no-print-directory --jobs=3 system style site compiled $(if $(CI),torch)
	$(MAKE) --no-print-directory --jobs=2 types tests

lint: style types facts  ## format, lint, types, import directions, facts

style: $(VENV)/.installed  ## format, lint, spelling and terms
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/codespell
	$(BIN)/python scripts/terms.py

site: $(VENV)/.installed  ## the documentation as a site in build/site; fails on a broken link
	$(BIN)/zensical build --strict --clean

types: $(VENV)/.installed
	$(BIN)/lint-imports
	$(BIN)/mypy

facts: $(VENV)/.installed
	$(PYTEST) --numprocesses 0 --quiet tests/conformance/test_facts_hold.py

unit: $(VENV)/.installed
	$(PYTEST) --numprocesses 2 --max-worker-restart 0 tests/unit \
		$(SAMPLE:%=tests/conformance/test_%.py)

compiled: $(VENV)/.installed  # else each process compiles every test; a broken one stops here
	@$(CACHED) $(BIN)/python -m pytest --collect-only -qq > $(VENV)/tests.txt || { tail -40 $(VENV)/tests.txt; exit 1; }

tests: $(VENV)/.installed
	$(PYTEST) --numprocesses $(WORKERS) --max-worker-restart 0

format: $(VENV)/.installed  ## rewrite files in the house style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.installed  ## figures for bench/RESULTS.md
	$(BIN)/python bench/run.py

canary-cpu: $(VENV)/.installed torch  ## canary programs and seeded faults without a GPU; writes bench/CANARY_CPU.md
	$(BIN)/python bench/canary_cpu.py --python $(TORCH)/bin/python
	$(BIN)/python bench/estimate.py --python $(TORCH)/bin/python >> bench/CANARY_CPU.md

torch:  ## PyTorch and other frameworks apart (up to 7 GB), for the tests of canary programs; CI has it
	./scripts/install-test-torch $(TORCH) $(PYTHON)

docs: $(VENV)/.installed  ## the operations of the client, generated reference pages, and the answers in README.md and the tutorial
	$(BIN)/python scripts/chart_files.py
	$(BIN)/python scripts/operations.py
	$(BIN)/python docs/generate.py

vocabulary: $(VENV)/.installed  ## compatgate/core/vocabulary.py, from matrix/facts/components.yaml
	$(BIN)/python scripts/vocabulary.py

image:  ## the container image, IMAGE=registry.example/compatgate:TAG; BASE is another base image
	$(if $(BASE),$(if $(findstring @sha256:,$(BASE)),,@echo "the base image has no digest: docs/how-to/install.md says how to pin it" >&2))
	docker build --file deploy/compose/Dockerfile $(if $(BASE),--build-arg PYTHON=$(BASE)) --tag $(IMAGE) .
	@echo "$(if $(findstring /,$(IMAGE)),next: docker push $(IMAGE),to push it: make image IMAGE=REGISTRY/$(IMAGE))"

system:  ## what tests need from the system (apt, as root); reported when it cannot be had
	./scripts/install-test-system

lock:  ## uv.lock and requirements-dev.txt, from pyproject.toml; UPGRADE=--upgrade takes the newest of everything
	$(BIN)/uv lock --quiet $(UPGRADE)
	$(BIN)/uv export --quiet --frozen --no-emit-project --no-header --no-annotate --output-file requirements-dev.txt

newest: $(VENV)/.installed  ## tests with the newest of everything in .venv-newest; prints what differs from the lock, and what fails
	UV=$(BIN)/uv $(PYTHON) scripts/newest.py $(TESTS)

# by uv, in a fifth of the time that pip takes; by pip where uv cannot be had
$(VENV)/.installed: pyproject.toml requirements-dev.txt
	$(PYTHON) -m venv $(VENV)
	sed -n '/^uv==/,/[^\\]$$/p' requirements-dev.txt | $(BIN)/python -m pip install $(LOCKED) /dev/stdin \
		&& $(BIN)/uv pip install --python $(BIN)/python $(LOCKED) requirements-dev.txt \
		|| $(BIN)/python -m pip install $(LOCKED) requirements-dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q compatgate
	touch $@

clean:
	rm -rf .demo $(VENV) $(VENV)-newest $(TORCH) build dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
