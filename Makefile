# `make run` and `make test` set up everything they need in .venv, once, and again when the requirements change. Every
# file that is installed has to have a hash that is listed in requirements/, but for torch: see .ci/lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
HASHED := $(PIP) --require-hashes --no-deps --requirement
REQUIREMENTS := pyproject.toml constraints.txt $(wildcard requirements/*.txt setup.py) $(wildcard src/tacit/*.c src/tacit/*/*.c src/tacit/*/*/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help run test suite coverage lint style types bench fuzz sanitize valgrind release lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(VENV)/.ready ## Set up and train the default job: the CNN on MNIST over 10 clients
	$(BIN)/tacit run $(ARGS)

test: style ## Set up, then lint, types, tests and doctests, and how many statements they reach
	@$(MAKE) --no-print-directory --jobs 2 types suite

# Bytecode is written whatever the environment says: three workers and all that they start read the same files.
suite: $(VENV)/.ready-test
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -p tests.reached -n 3 --dist loadgroup --no-loadscope-reorder $(ARGS)

coverage: $(VENV)/.ready-test ## The tests once more, slower, line by line: .coverage and htmlcov/
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder --cov=tacit --cov-report=term:skip-covered --cov-report=html $(ARGS)

lint: style types ## Set up, then ruff and mypy

style: $(VENV)/.ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.ready-test
	$(BIN)/mypy

bench: $(VENV)/.ready-test ## Run the benchmarks; results go to benchmarks/results
	$(BIN)/python benchmarks/simulation/compare.py $(ARGS)

# What it finds lies in tests/fuzz/corpus, where `make test` tries it from then on.
SECONDS = 600

fuzz: $(VENV)/.ready-test ## Search for inputs that escape the error tree, for SECONDS=600; TARGETS="keys frames" for some
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS) $(TARGETS) $(ARGS)

# The core is built a second time, with checks, beside a copy of the package, and its tests run over that copy.
# LD_PRELOAD: the interpreter itself is built without them. Leaks are not looked for: Python keeps much until its end.
CORE_FLAGS = -std=gnu11 -Wall -Wextra -Werror -DPy_LIMITED_API=0x030B0000 -fPIC -shared \
	$(shell $(BIN)/python -c 'import sysconfig; print("-I" + sysconfig.get_path("include"))')

sanitize: $(VENV)/.ready-test ## Run the native core's tests under the address and undefined-behaviour sanitizers
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	cp -r src/tacit "$$folder" && rm -f "$$folder"/tacit/crypto/_native*.so && \
	$(CC) $(CORE_FLAGS) -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all \
		src/tacit/crypto/_native.c -o "$$folder/tacit/crypto/_native.abi3.so" && \
	LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" \
	ASAN_OPTIONS=detect_leaks=0 TACIT_CRYPTO_BACKEND=native PYTHONPATH="$$folder" \
		$(BIN)/python -m pytest -q -p no:cacheprovider -k 'not gmpy2' tests/crypto/test_backends.py $(ARGS)

# Valgrind has no AVX-512, so the core is built with its instructions emulated. Memcheck sees reads of memory that is not
# ours or was never written, leaks, and, because secrets are marked as undefined, every branch and address that depends
# on a secret; it must see the one that is there when a power is told that its exponent is public.
valgrind: ## Run the native core under valgrind: memory, leaks, and nothing that depends on a secret
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(CC) -std=gnu11 -Wall -Wextra -Werror -Wno-psabi -O1 -g -DTACIT_EMULATED -Isrc/tacit/crypto \
		tests/crypto/core_secrets.c -o "$$folder/core" && \
	valgrind --quiet --error-exitcode=1 --leak-check=full "$$folder/core" && \
	if valgrind --quiet --error-exitcode=1 "$$folder/core" leak >"$$folder/log" 2>&1; \
		then echo "a public exponent was not noticed"; exit 1; else echo "clean; a public exponent is noticed"; fi

release: $(VENV)/.ready-test ## Build sdist and wheel, install the wheel in a new environment and try it there
	@PATH="$(abspath $(BIN)):$$PATH" .ci/release $(ARGS)

lock: $(VENV)/.ready-test ## Write the versions and hashes of all that is installed (requirements/) anew
	@.ci/lock $(ARGS)

clean: ## Remove the environment and build outputs
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .ruff_cache .pytest_cache

# torch goes alone, so that no other package's range chooses another build of it. What is installed is compiled on all
# cores, where pip takes one; some packages carry templates that are no Python. What only tests need, they compile.
$(VENV)/.ready: $(REQUIREMENTS)
	@echo "Setting up $(VENV) (about a minute and a half; only when the requirements change)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(HASHED) requirements/run.txt
	@$(PIP) --constraint constraints.txt torch
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	@touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	@$(HASHED) requirements/test.txt
	@touch $@
