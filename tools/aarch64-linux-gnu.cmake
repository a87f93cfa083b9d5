# Cross-compiling for AArch64 Linux with the GNU toolchain, and running the result in an emulator (tools/deps cross installs both):
#   cmake -S . -B build-aarch64 -DCMAKE_TOOLCHAIN_FILE=tools/aarch64-linux-gnu.cmake -DHEED_CORE_ONLY=ON
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)

# Where the C library of the target lies; the emulator looks for it there too.
set(HEED_TARGET_ROOT /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH ${HEED_TARGET_ROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
find_program(HEED_EMULATOR NAMES qemu-aarch64-static qemu-aarch64)
if(HEED_EMULATOR)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${HEED_EMULATOR} -L ${HEED_TARGET_ROOT})
endif()
