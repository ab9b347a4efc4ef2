# Everything a person types here. Only Python >= 3.11 and make are needed beforehand.
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
RUN := .venv/.run
DEV := .venv/.dev
REAL := .venv/.real
JOBS ?= auto

.PHONY: demo test check test-real soak bench sim clean help fmt

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

$(RUN): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "tela needs Python 3.11 or newer; set PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "setting up .venv (once, about a minute)" >&2; $(PYTHON) -m venv .venv; }
	@$(BIN)/pip install -q --disable-pip-version-check 'pip>=25.1'
	@$(BIN)/pip install -q --disable-pip-version-check -e .
	@touch $@

$(DEV): $(RUN)
	@$(BIN)/pip install -q --disable-pip-version-check --group dev
	@touch $@

$(REAL): $(DEV)
	@$(BIN)/pip install -q --disable-pip-version-check --group real
	@touch $@

demo: $(RUN) ## a whole fabric on this machine: ingress, three workers, live traffic (Ctrl-C ends it)
	@$(BIN)/tela demo $(ARGS)

test: $(DEV) ## the tests; nothing sleeps (ARGS="-k name" to choose)
	@$(BIN)/pytest -q -n $(JOBS) --ignore tests/real $(ARGS)

check: $(DEV) ## format, lint, layers, types, dead code, dependencies, spelling
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@$(BIN)/lint-imports --no-logo >.venv/lint-imports.log || { cat .venv/lint-imports.log; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/vulture
	@$(BIN)/deptry . 2>&1 | grep -v '^$$' | tail -5
	@$(BIN)/codespell
	@echo "check: all good"

fmt: $(DEV) ## format and apply safe fixes
	@$(BIN)/ruff format -q .
	@$(BIN)/ruff check -q --fix .

test-real: $(REAL) ## real processes, a real Slurm (as root) and a real vLLM (built once in ~/.cache/tela)
	@$(BIN)/pytest -q -m real tests/real $(ARGS)

sim: $(DEV) ## the simulator over many seeds (SEEDS=200)
	@SIM_SEEDS=$(or $(SEEDS),200) $(BIN)/pytest -q -n $(JOBS) tests/gossip/test_sim.py $(ARGS)

bench: $(DEV) ## ratios against a direct connection in the same run; JSON in docs/bench
	@$(BIN)/python -P -m tests.bench $(ARGS)

soak: $(DEV) ## the full figures (ONLY=part runs one part); JSON in docs/bench
	@$(BIN)/python -P -m tests.soak $(ONLY)

clean: ## remove the environment and caches
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist
