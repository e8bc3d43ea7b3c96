# Two commands do everything: `make demo` and `make test`. Both install into .venv first.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo federation-demo test test-torch lint format docs notebook bench fuzz deviations faults clean

demo: $(INSTALLED)
	$(BIN)/fedmmf demo
	@echo 'To call fedmmf by its name: . $(BIN)/activate'
	@echo 'Then try: fedmmf train --data synthetic --mask lr --report run.html'

federation-demo: $(INSTALLED)
	$(BIN)/python examples/federation_demo.py

test: lint
	$(BIN)/python -m pytest

# The engine on torch, on the processor and, where there is one, on a card. Triton's interpreter runs
# the kernels where there is none.
test-torch: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch triton
	$(BIN)/python -m pytest tests/engines tests/bench/test_engines.py

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
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	$(BIN)/fedmmf bench training --data ml-1m
	$(BIN)/fedmmf bench rounds --data ml-100k --data ml-1m
	$(BIN)/fedmmf bench strict --data ml-1m
	$(BIN)/fedmmf bench growth
	$(BIN)/fedmmf bench federation --data ml-100k

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

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
