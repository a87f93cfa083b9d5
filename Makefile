# The thin door to CMake: make, make demo, make test, make bench, make bench-peers, make install, make clean. Everything lands in $(BUILD).
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
MODEL ?= stories260k
PEERS_VENV ?= $(BUILD)/peers-venv
PEERS_PIP ?=
PEERS_ARGS ?=

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

bench: all
	@$(BUILD)/heed bench attention

# Beside PyTorch and ONNX Runtime, which get a virtual environment of their own (some gigabytes; PEERS_PIP goes to pip, PEERS_ARGS to bench/peers.py).
bench-peers: all $(PEERS_VENV)/installed
	@$(PEERS_VENV)/bin/python bench/peers.py --library $(BUILD)/libheed.so $(PEERS_ARGS)

$(PEERS_VENV)/installed: bench/requirements.txt
	@python3 -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/pip install --quiet $(PEERS_PIP) -r bench/requirements.txt
	@touch $@

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)

.PHONY: all demo test bench bench-peers install clean
.NOTPARALLEL:
