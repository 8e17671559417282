# LLM inference capacity planner. `make run` starts it, `make test` checks it.
# Settings: HOST, PORT, WORKERS, THREADS, DATABASE_URL, PYTEST_ARGS, PYTHON.

HOST ?= 127.0.0.1
PORT ?= 8000
WORKERS ?= 2
THREADS ?= 4
PYTEST_ARGS ?=

VENV := .venv
ifeq ($(OS),Windows_NT)
BIN := $(VENV)/Scripts
SYSTEM := Windows
else
BIN := $(VENV)/bin
SYSTEM := $(shell uname -s)
endif
PY := $(BIN)/python
FLASK := $(PY) -m flask --app app
SHOWN_HOST := $(if $(filter 0.0.0.0 ::,$(HOST)),127.0.0.1,$(HOST))
URL := http://$(SHOWN_HOST):$(PORT)

ifeq ($(SYSTEM),Linux)
SERVE = $(PY) -m gunicorn --bind $(HOST):$(PORT) --workers $(WORKERS) --threads $(THREADS) \
	--timeout 120 --no-control-socket 'app:create_app()'
else
SERVE = $(PY) -m waitress --listen=$(HOST):$(PORT) --threads=8 --call app:create_app
endif

.DEFAULT_GOAL := help
.PHONY: help setup run test lint bench load test-postgres clean

help:
	@echo "make setup          environment, database, catalog"
	@echo "make run            setup, then serve on $(URL)"
	@echo "make test           all tests (PYTEST_ARGS='-k plan' picks some)"
	@echo "make lint           ruff, mypy, import-linter"
	@echo "make bench          times of plans, estimates, workbooks, simulator (PEERS=... beside others)"
	@echo "make load           requests from many clients against a server started for it"
	@echo "make test-postgres  the database tests on a throwaway PostgreSQL server"
	@echo "make clean          removes the environment and caches; keeps the database"

# -- environment --------------------------------------------------------------------------------

$(PY):
	@PYTHON='$(PYTHON)' sh scripts/make_venv.sh $(VENV)

$(VENV)/.runtime: requirements.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.dev: requirements.txt requirements-dask.txt requirements-dev.txt | $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.runtime

setup: $(VENV)/.runtime
	@$(PY) -m planner.warm_up
	@$(FLASK) db upgrade
	@$(FLASK) catalog load

run: setup
	@echo ""
	@echo "Open  $(URL)/docs   (stop with Ctrl-C; another port: make run PORT=9000)"
	@echo "or paste into a second terminal, in this folder:"
	@echo "  curl -s $(URL)/api/v1/plans -H 'Content-Type: application/json' -d @examples/chat.json"
	@echo ""
	@$(SERVE)

# -- checks -------------------------------------------------------------------------------------

test: $(VENV)/.dev
	@$(PY) -m pytest $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(BIN)/lint-imports

bench: $(VENV)/.dev
	@$(PY) -m scripts.bench
	@$(PY) -m scripts.bench_simulators $(PEERS)

load: $(VENV)/.dev
	@$(PY) -m scripts.load

test-postgres: $(VENV)/.dev
	@bash scripts/with_postgres.sh $(PY) -m pytest $(PYTEST_ARGS) $(wildcard tests/models tests/api tests/traces tests/jobs/test_queue.py)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
