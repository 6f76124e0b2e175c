# make demo     from nothing to a live gateway and a simulated comparison
# make test     the tests in an environment without torch, but those that take long: some minutes
# make test-long  live systems, and what takes 2 s or more: oracles, every reproduction; half an hour
# make test-learn  those of learning: trainers, exports, Stable-Baselines3 on every environment
# make test-quick  the tests nearest to the change at hand, for at most a minute and a half
# make mutants  breaks rules on purpose, in cores and in drivers: tests must see each
# make check    format, lint, types, import rule, documentation
# make bed      a real Kubernetes on this machine; make bed-down ends it
# make test-bed its tests, where root and Go are (PARTS="cluster picker" for some); make test-beds runs those
#               that have not passed since what they are about was changed
# make test-beds  the test beds and the conformance suite of pickers, see beds/README.md
# make test-ray a sweep on a real Ray cluster of this machine, in an environment of its own (1.1 GB)
# make bench    speed, side by side with the peers; writes docs/results/bench, and its figures into README and docs
# make bench-docs  the figures of docs/results/bench into README and docs, without measuring
# make docs     build the documentation into site/
# make clean    remove everything that is made here, .venv included
#
# PYTHON chooses the interpreter, VENV the folder of the environment:
#   make test PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Of its own, since torch takes 5 GB.
LEARN := .venv-learn/bin
# Of its own, since the messages of Envoy bring other versions of some that traces are sent in.
BEDS := .venv-beds/bin
# Holds virtualenv where the interpreter comes without ensurepip; nothing is installed outside this folder.
BOOTSTRAP := build/virtualenv
REQUIREMENTS := pyproject.toml studies/pyproject.toml constraints.txt
# Inference servers to compare with; they pin versions of their own, so each has an environment of its own.
PEERS := mlserver kserve

export NO_MKDOCS_2_WARNING := 1 # its notice on stderr says nothing about this build

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo protocol test test-long test-learn test-quick mutants test-bed test-beds test-ray bed bed-down check bench bench-docs docs clean

help:
	@sed -n 's/^# make/make/p' Makefile

demo: $(VENV)/.demo
	$(BIN)/edgewise demo

# One worker more than cores, since tests of live systems mostly wait. What a file sets up its tests share.
PARALLEL = -n $(shell $(PYTHON) -c "import os; print(min(os.cpu_count(), 7) + 1)") --dist loadfile --no-loadscope-reorder

# What fails is judged once more beside nothing else: a machine that stands still for seconds fails live systems.
AGAIN = $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not long and not alone" $(PARALLEL) || $(AGAIN)

test-long: $(VENV)/.dev
	$(BIN)/python -m pytest -m "long and not alone" $(PARALLEL) || $(AGAIN)
	$(BIN)/python -m pytest -m alone tests/live

test-learn: .venv-learn/.made
	$(LEARN)/mypy src/edgewise/learn studies/edgewise_studies/training
	$(LEARN)/python -m pytest tests/learn $(PARALLEL) || $(LEARN)/python -m pytest tests/learn --last-failed --last-failed-no-failures none

test-quick: $(VENV)/.dev
	$(BIN)/python -m pytest --quick $(PARALLEL) -n 2

# Messages of gRPC anew, after open_inference.proto has changed; protoc comes with grpcio-tools, which nothing else needs.
protocol: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet grpcio-tools --target build/protoc
	cd src/edgewise/runtime/protocol && PYTHONPATH=$(CURDIR)/build/protoc $(abspath $(BIN))/python -m grpc_tools.protoc \
	  -I. --descriptor_set_out=open_inference.binpb open_inference.proto

mutants: $(VENV)/.dev
	$(BIN)/python tests/mutants/breaking.py

test-beds: .venv-beds/.made
	$(BEDS)/python -m pytest picker-conformance beds --ignore beds/kubernetes \
	  || $(BEDS)/python -m pytest picker-conformance beds --ignore beds/kubernetes --last-failed --last-failed-no-failures none
	$(BEDS)/python -m beds.kubernetes test --changed

test-ray: .venv-ray/.made
	.venv-ray/bin/python -m pytest beds/test_ray.py

test-bed: .venv-beds/.made
	$(BEDS)/python -m beds.kubernetes test $(PARTS)

bed: .venv-beds/.made
	$(BEDS)/python -m beds.kubernetes up $(BED)

bed-down: .venv-beds/.made
	$(BEDS)/python -m beds.kubernetes down

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/mkdocs build --strict --quiet

bench-docs: $(VENV)/.made
	$(BIN)/python -m bench.figures

bench: $(VENV)/.bench $(PEERS:%=.venv-peers/%/.tried)
	$(BIN)/python -m bench

docs: $(VENV)/.dev
	$(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) .venv-learn .venv-beds .venv-ray .venv-peers build dist site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src studies tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: an environment is made once, and brought up to date when the requirements change.

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "edgewise needs Python 3.11 or newer; choose one with PYTHON=python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV) && \
	  $(PYTHON) -m pip install --quiet --target $(BOOTSTRAP) virtualenv && \
	  PYTHONPATH=$(BOOTSTRAP) $(PYTHON) -m virtualenv $(VENV); }
	@touch $@

$(VENV)/.demo: $(VENV)/.made $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[demo]' -e ./studies
	@touch $@

$(VENV)/.dev: $(VENV)/.made $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]' -e ./studies
	@touch $@ $(VENV)/.demo

.venv-learn/.made: $(REQUIREMENTS) | $(VENV)/.made
	$(BIN)/python -m venv $(@D) || PYTHONPATH=$(BOOTSTRAP) $(PYTHON) -m virtualenv $(@D)
	$(@D)/bin/python -m pip install --quiet -c constraints.txt -e '.[dev-learn]' -e ./studies
	@touch $@

.venv-beds/.made: $(REQUIREMENTS) picker-conformance/pyproject.toml | $(VENV)/.made
	$(BIN)/python -m venv $(@D) || PYTHONPATH=$(BOOTSTRAP) $(PYTHON) -m virtualenv $(@D)
	$(@D)/bin/python -m pip install --quiet -c constraints.txt -e '.[beds]' -e ./picker-conformance
	@touch $@

.venv-ray/.made: $(REQUIREMENTS) | $(VENV)/.made
	$(BIN)/python -m venv $(@D) || PYTHONPATH=$(BOOTSTRAP) $(PYTHON) -m virtualenv $(@D)
	$(@D)/bin/python -m pip install --quiet -c constraints.txt -e '.[ray]' pytest
	@touch $@

$(VENV)/.bench: $(VENV)/.made $(REQUIREMENTS)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench,live]'
	@touch $@

# A peer that cannot be installed here is left out of the comparison, which says so.
.venv-peers/%/.tried: bench/peers/%.txt | $(VENV)/.made
	rm -rf $(@D)
	{ $(BIN)/python -m venv $(@D) || PYTHONPATH=$(BOOTSTRAP) $(PYTHON) -m virtualenv $(@D); } \
	  && $(@D)/bin/python -m pip install --quiet -r $< \
	  || { rm -rf $(@D); mkdir -p $(@D); echo "$* could not be installed; it will be skipped"; }
	@touch $@
