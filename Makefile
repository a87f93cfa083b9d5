# The thin door to CMake: make, make demo, make test, make bench, make install, make clean. Everything lands in $(BUILD).
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)
MODEL ?= stories260k

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

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	@rm -rf $(BUILD)

.PHONY: all demo test bench install clean
.NOTPARALLEL:
