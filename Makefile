# The thin door to CMake. `make`, `make demo`, `make test`, `make bench`, `make install`, `make clean`.
BUILD ?= build
PREFIX ?= /usr/local
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) -j $(JOBS) -- --no-print-directory

$(BUILD)/CMakeCache.txt:
	@tools/deps
	@cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

test: all
	@cd $(BUILD) && ctest --output-on-failure -j $(JOBS)

install: all
	@cmake --install $(BUILD)

clean:
	@rm -rf $(BUILD)

.PHONY: all demo test bench install clean
