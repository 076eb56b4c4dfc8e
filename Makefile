# Every target sets up what it needs: a fresh clone needs nothing but python3 and make.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
# What the installed package depends on; Python files are live through the editable install.
INPUTS := pyproject.toml constraints.txt CMakeLists.txt $(wildcard src/temper/kernels/*.cpp src/temper/kernels/*.hpp)

.DEFAULT_GOAL := help
.PHONY: help demo test lint format types pictures bench clean

help:  ## Show this list.
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

$(STAMP): $(INPUTS)
	@echo "==> setting up $(VENV) (first time: a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    'torch==2.13.0' scikit-build-core nanobind cmake ninja \
	    || { echo "make: installing the build tools failed" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
	    --no-build-isolation -e '.[dev,ray]' \
	    || { echo "make: installing temper failed" >&2; exit 1; }
	@touch $@

demo: $(STAMP)  ## Climb the ladder on a small CNN, profile a script, say what to open.
	@echo "==> what each setting brings (temper explain)"
	@$(BIN)/temper explain examples/models/mnist.py:make --picture runs/demo/ladder.png
	@echo "==> where the time goes (temper profile, temper report)"
	@$(BIN)/temper profile -o runs/demo/profile "$(BIN)/python examples/quickstart.py"
	@$(BIN)/temper report runs/demo/profile --limit 5
	@echo "==> open runs/demo/profile/report.html in a browser, runs/demo/ladder.png for the ladder"

test: $(STAMP)  ## Run the tests.
	@echo "==> tests"
	@$(BIN)/python -m pytest -n 2 --dist loadfile -q

lint: $(STAMP)  ## Check style.
	@echo "==> lint"
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP)  ## Mend style.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

types: $(STAMP)  ## Check types strictly.
	@echo "==> types"
	@$(BIN)/mypy

pictures: $(STAMP)  ## Draw the README's pictures again (needs chromium).
	@$(BIN)/python scripts/pictures.py

bench: $(STAMP)  ## Run the benchmarks that take minutes, not hours.
	@for script in formats host profiler etl; do \
	    echo "==> benchmarks/$$script.py"; $(BIN)/python benchmarks/$$script.py || exit 1; done

clean:  ## Remove the environment and everything built.
	rm -rf $(VENV) build dist results generated runs .pytest_cache .mypy_cache .ruff_cache
