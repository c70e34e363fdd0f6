# Each target sets up what it needs: on a fresh clone `make demo` or `make test` is the first command.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: setup demo test test-lowest lint format check docs results bench fuzz faults mutants soak lock audit clean

setup: $(INSTALLED)  ## make .venv and install everything

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "mgformer needs Python 3.11 or newer; set PYTHON=/path/to/python3"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup  ## train on the built-in data and show recommendations
	$(BIN)/mgformer train demo --model guided --out runs/demo
	$(BIN)/mgformer recommend runs/demo --user amir-186 --user elif-004 --user bella-787 -k 8

# The tests of a file share fixtures that take long, so a process takes whole files.
PARALLEL := --numprocesses auto --maxprocesses 4 --dist loadfile
test: setup  ## run the tests
	$(BIN)/pytest $(PARALLEL)

# torch has one pinned version, because not every older one has a CPU build.
LOWEST := build/lowest
$(LOWEST)/installed: pyproject.toml constraints.txt constraints-lowest.txt
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/pip install --quiet --disable-pip-version-check -c constraints-lowest.txt \
		-e '.[ann,ials,onnx,report,serve,tensorboard,tune]' \
		httpx httpx2 hypothesis ir-measures pandas pyarrow pytest pytest-xdist
	@touch $@

test-lowest: $(LOWEST)/installed  ## run the tests of commands, runs and service at the lowest versions
	$(LOWEST)/bin/python -m pytest -q -m 'not slow' -o filterwarnings=default -p no:cacheprovider \
		$(PARALLEL) --ignore tests/serving/page --ignore tests/serving/test_schema.py \
		tests/cli tests/serving tests/runs

lint: setup  ## formatting, types, layers, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: setup  ## rewrite files in the project's style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: lint test  ## what a change must pass

docs: setup  ## build the documentation as a site in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would hide warnings from --strict

results: setup  ## write the figures of results/ into the documents
	$(BIN)/python -m tools.render

soak: setup  ## load the service for ten minutes, then kill it under load; writes results/reliability
	$(BIN)/python -m tools.soak --save
	$(BIN)/python -m tools.traffic --save

bench: setup  ## ratios against peers and limits, one after another
	$(BIN)/python -m benchmarks.startup
	$(BIN)/python -m benchmarks.ranking
	$(BIN)/python -m benchmarks.filters
	$(BIN)/python -m benchmarks.reading
	$(BIN)/python -m benchmarks.loading
	$(BIN)/python -m benchmarks.baselines
	$(BIN)/python -m benchmarks.training
	$(BIN)/python -m benchmarks.regression
	$(BIN)/python -m benchmarks.large
	$(BIN)/python -m benchmarks.scaling
	$(BIN)/python -m benchmarks.attention
	$(BIN)/python -m benchmarks.serving
	$(BIN)/python -m benchmarks.recency
	$(BIN)/python -m benchmarks.serving --reload
	$(BIN)/python -m benchmarks.batch
	$(BIN)/python -m benchmarks.ann
	$(BIN)/python -m benchmarks.peers --dataset ml-latest-small
	$(BIN)/python -m benchmarks.peers --dataset amazon-beauty

FUZZ_SECONDS ?= 3600
fuzz: setup  ## feed generated inputs to readers, for FUZZ_SECONDS in all; writes results/reliability
	MGFORMER_FUZZ_SECONDS=$$(($(FUZZ_SECONDS) / $$($(BIN)/pytest -q --collect-only tests/fuzz | grep -c ::))) \
		$(BIN)/pytest -q tests/fuzz

mutants: setup  ## check that the tests notice wrong code
	$(BIN)/python -m tools.mutants --save

lock: setup  ## write requirements.lock: the pinned environment with hashes
	$(BIN)/python -m tools.lock

audit: setup  ## look up known vulnerabilities of the pinned environment
	$(BIN)/python -m tools.audit

faults: setup  ## fail, kill and race everything that writes; about ten minutes
	$(BIN)/python -m tools.faults

clean:
	rm -rf $(VENV) runs build dist
