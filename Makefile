# The thin door to CMake: make, make demo, make test, make test-tsan, make test-msan, make bench, make bench-peers, make tutorial, make install, make clean. Everything lands in $(BUILD).
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
MODEL ?= stories260k
PEERS_VENV ?= $(BUILD)/peers-venv
PEERS_PIP ?=
PEERS_ARGS ?=
TEXT ?= tinyshakespeare.txt

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS) -- --no-print-directory

$(BUILD)/CMakeCache.txt:
	@tools/deps
	@cmake -S . -B $(BUILD) -DBUILD_TESTING=OFF

demo: all
	@tools/demo $(BUILD)/heed $(MODEL)

test:
	@tools/deps test
	@models=$$(tools/get-models smollm2) && cmake -S . -B $(BUILD) -DBUILD_TESTING=ON -DHEED_MODELS="$$(dirname "$$models")"
	@cmake --build $(BUILD) -j $(JOBS) -- --no-print-directory
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS); status=$$?; tests/levels; exit $$status

# The tests of the core under sanitizers that do not know OpenMP, on POSIX threads: data races, and memory that is read before it is written (clang's alone; at the
# scalar level, because that sanitizer takes most vector instructions for uses of all their lanes).
CORE_ONLY = cmake -S . -DBUILD_TESTING=ON -DHEED_CORE_ONLY=ON -DHEED_OPENMP=OFF -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG="-O1 -g"

test-tsan:
	@$(CORE_ONLY) -B $(BUILD)-tsan -DHEED_SANITIZE=thread
	@cmake --build $(BUILD)-tsan -j $(JOBS) -- --no-print-directory
	@cd $(BUILD)-tsan && HEED_TEST_PARALLEL=pthread ctest --output-on-failure --no-tests=error -j $(JOBS) -L unit

test-msan:
	@$(CORE_ONLY) -B $(BUILD)-msan -DHEED_SANITIZE=memory -DCMAKE_C_COMPILER=clang
	@cmake --build $(BUILD)-msan -j $(JOBS) -- --no-print-directory
	@cd $(BUILD)-msan && HEED_TEST_LEVEL=scalar HEED_TEST_PARALLEL=pthread ctest --output-on-failure --no-tests=error -j $(JOBS) -L unit

bench: all
	@$(BUILD)/heed bench attention

# Beside PyTorch and ONNX Runtime, which get a virtual environment of their own (some gigabytes; PEERS_PIP goes to pip, PEERS_ARGS to bench/peers.py).
bench-peers: all $(PEERS_VENV)/installed
	@$(PEERS_VENV)/bin/python bench/peers.py --library $(BUILD)/libheed.so $(PEERS_ARGS)

$(PEERS_VENV)/installed: bench/requirements.txt
	@python3 -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/pip install --quiet $(PEERS_PIP) -r bench/requirements.txt
	@touch $@

# Everything in docs/tutorial.md, in full, on TEXT (the page says where it is found); TUTORIAL_PYTHON names a Python with transformers for the last listing.
tutorial: all
	@tests/tutorial.py "$(CURDIR)" "$(abspath $(BUILD))" cmake --full "$(TEXT)"

# A run killed at fifty random moments.
soak-resume: all
	@HEED=$(abspath $(BUILD))/heed HEED_TEST_DATA=$(CURDIR)/tests/data OMP_WAIT_POLICY=passive python3 tests/soak_resume.py

# What `heed train task` promises, for three seeds.
tasks: all
	@HEED=$(abspath $(BUILD))/heed HEED_TEST_DATA=$(CURDIR)/tests/data python3 tests/tasks.py

# What heed writes, read by Hugging Face's transformers, in a virtual environment of its own (some gigabytes).
CHECK_VENV ?= $(BUILD)/transformers-venv
CHECK_TEXT ?= docs/architecture.md

check-transformers: all $(CHECK_VENV)/installed
	@$(CHECK_VENV)/bin/python tools/check-transformers $(BUILD)/heed $(CHECK_TEXT)

$(CHECK_VENV)/installed:
	@python3 -m venv $(CHECK_VENV)
	@$(CHECK_VENV)/bin/pip install --quiet $(PEERS_PIP) torch==2.15.0 transformers==5.24.0
	@touch $@

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)

.PHONY: all demo test bench bench-peers check-transformers soak-resume tasks tutorial install clean
.NOTPARALLEL:
