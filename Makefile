# Two commands do everything: `make demo` and `make test`. Both install the library and the
# experiments into .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

RESULTS := build/tests
JOBS ?= 2
PYTEST = python -m pytest -n $(JOBS) --junitxml=$(RESULTS)/$@.xml
AXE := node_modules/axe-core/axe.min.js

# Parts of the project that need packages of their own: for each, those packages and the tests that
# are skipped without them. `make test-ray` makes .venv-ray and runs its tests; `make test-optional`
# runs all.
OPTIONAL := ray torch interop peers flower
CONSTRAINED := --constraint constraints.txt
EXPERIMENTS := --editable ./experiments
ray.install := $(CONSTRAINED) --editable '.[test,ray]' $(EXPERIMENTS)
ray.tests := -n 0 -k ray tests/engines tests/simulation tests/party experiments/tests/bench
# Ray opens ports: it runs where there is only a loopback interface, and more workers than cores.
ray.within := FEDMMF_RAY_WORKERS=3 unshare $(if $(filter 0,$(shell id -u)),-n,-rn) \
	sh -c 'ip link set lo up && exec "$$@"' sh
# Triton's interpreter runs the kernels where there is no card.
torch.install := $(CONSTRAINED) --editable '.[test,gpu]' $(EXPERIMENTS) triton
torch.tests := -k 'torch or test_engines' tests/engines tests/simulation tests/party \
	tests/aggregation/test_dp_hostile.py \
	experiments/tests/bench
interop.install := $(CONSTRAINED) --editable '.[test,interop]'
interop.tests := tests/interop
peers.install := $(CONSTRAINED) --editable '.[test]' --editable './experiments[bench]'
peers.tests := experiments/tests/bench/test_training.py experiments/tests/bench/test_ranking.py \
	experiments/tests/bench/test_first_answer.py
# Flower wants older ones of some packages: see the extra in experiments/pyproject.toml. All others
# are what the other environments have, or a release of any of them could end these tests.
FLOWERS_OWN := click|fastapi|packaging|protobuf|rich|starlette|typer|uvicorn
flower.install := --constraint .venv-flower/constraints.txt --editable '.[test]' \
	--editable './experiments[bench-secagg]'
flower.tests := experiments/tests/bench/test_secagg.py
# Its numba may be another one, and would write over the kernels that the others have compiled.
flower.within := NUMBA_CACHE_DIR=$(CURDIR)/.venv-flower/numba

.PHONY: demo federation-demo test test-all test-optional $(OPTIONAL:%=test-%) test-browser axe lint format docs \
	notebook bench tables fuzz deviations faults clean

demo: $(INSTALLED)
	$(BIN)/fedmmf demo
	@echo 'To call fedmmf by its name: . $(BIN)/activate'
	@echo 'Then try: fedmmf train --data synthetic --mask lr --report run.html'

federation-demo: $(INSTALLED)
	$(BIN)/python examples/federation_demo.py

# Minutes: what a change is tried with. `make test-all` runs the rest, which takes longer.
test: lint
	$(BIN)/$(PYTEST) -m 'not slow'

test-all: $(INSTALLED)
	$(BIN)/$(PYTEST) -m slow

test-optional: $(OPTIONAL:%=test-%)

$(OPTIONAL:%=test-%): test-%: .venv-%/.installed
	$($*.within) .venv-$*/bin/$(PYTEST) $($*.tests)

# Needs chromium and chromium-driver, and npm for axe-core. Where these are, `make test-all` runs them too.
test-browser: $(INSTALLED) axe
	$(BIN)/$(PYTEST) tests/reports/test_browser.py \
		tests/federation/test_page_browser.py tests/test_site.py

axe: $(AXE)

$(AXE):
	npm install --no-save --no-package-lock --no-audit --no-fund axe-core@4.14.0

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Warnings are errors: see mkdocs.yml. The variable silences news about the theme's successor.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo 'Open site/index.html. Search needs a server: $(BIN)/python -m http.server -d site -b 127.0.0.1'

# Needs ml-100k. Keeps what the notebook prints and draws.
notebook: $(INSTALLED)
	$(BIN)/python examples/print_notebook.py

# Needs ml-100k and ml-1m (`fedmmf data get`, or FEDMMF_DATA). torch first: lenskit would take a
# CUDA build.
bench: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable './experiments[bench]'
	$(BIN)/fedmmf bench training --data ml-1m
	$(BIN)/fedmmf bench rounds --data ml-100k --data ml-1m
	$(BIN)/fedmmf bench strict --data ml-1m
	$(BIN)/fedmmf bench growth
	$(BIN)/fedmmf bench federation --data ml-100k

# Runs the probe of each printed table, and the commands of those that are stale, which may take
# hours. `make tables NAME=lists` prints that one again.
tables: $(INSTALLED)
	$(BIN)/python -m fedmmf_experiments.tables experiments/docs/probes.json $(NAME)

# A million broken messages at the decoders of secure sums, and a million at live parties.
fuzz: $(INSTALLED)
	$(BIN)/python tests/secagg/fuzz.py 1000000
	$(BIN)/python tests/party/siege.py 1000000

# Ten trainings while machines are killed and links are cut, and a kill at every single moment.
faults: $(INSTALLED)
	$(BIN)/python tests/federation/faults.py 10
	FEDMMF_EVERY_MOMENT=1 $(BIN)/python -m pytest -n 2 tests/federation/test_kills.py

# A hundred thousand runs with a server that lies in one field of one message, looking for a party
# that is read.
deviations: $(INSTALLED)
	$(BIN)/python tests/security/deviations.py 100000

PROJECTS := pyproject.toml experiments/pyproject.toml constraints.txt

$(INSTALLED): $(PROJECTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(CONSTRAINED) --editable '.[dev]' $(EXPERIMENTS)
	touch $@

.venv-%/.installed: $(PROJECTS)
	$(PYTHON) -m venv .venv-$*
	grep -vE '^($(FLOWERS_OWN))==' constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet $($*.install)
	touch $@

clean:
	rm -rf $(VENV) $(OPTIONAL:%=.venv-%) node_modules build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
