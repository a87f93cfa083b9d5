# Every tests/unit/NAME.c and tests/complaints/NAME.c is one cmocka program, test NAME. It links the static library, whose hidden symbols it may use, and finds its
# fixtures under HEED_TEST_DATA. Models that are fetched (tools/get-models) lie under HEED_MODELS; a missing one fails the test that needs it.
# Labels: `unit` for all of them, and `whole_model` for those named *_smollm2.c, which run all of a fetched model, and for model_bits.c, which runs a small one at every
# level: .ci/run leaves these out under sanitizers and at the scalar level, where they would take minutes.
# With HEED_CORE_ONLY only those are built that include nothing beyond the core. They take tests/support/plain/cmocka.h for cmocka.
if(NOT BUILD_TESTING)
  return()
endif()

if(HEED_CORE_ONLY)
  set(tested heed_core)
else()
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  set(tested heed_static PkgConfig::CMOCKA)
endif()
if(DEFINED ENV{HEED_MODELS})
  set(default_models $ENV{HEED_MODELS})
elseif(DEFINED ENV{XDG_CACHE_HOME})
  set(default_models $ENV{XDG_CACHE_HOME}/heed/models)
else()
  set(default_models $ENV{HOME}/.cache/heed/models)
endif()
set(HEED_MODELS ${default_models} CACHE PATH "where tools/get-models keeps models")

# A program in tests/ of the build folder, with what the tests share on its include path.
function(heed_test_program name source)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${tested})
  if(HEED_USES_OPENMP) # a test may open a parallel region of its own
    target_link_libraries(${name} PRIVATE OpenMP::OpenMP_C)
  endif()
  target_include_directories(${name} PRIVATE tests)
  if(HEED_CORE_ONLY)
    target_include_directories(${name} PRIVATE tests/support/plain)
  endif()
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE HEED_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" HEED_MODELS="${HEED_MODELS}")
  target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
endfunction()

# Whether a test includes, itself or through headers of tests/, what does not belong to the core.
function(heed_beyond_core source result)
  get_filename_component(folder ${source} DIRECTORY)
  file(STRINGS ${source} includes REGEX "^#include \"")
  foreach(line ${includes})
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" name "${line}")
    set(beyond OFF)
    if(name MATCHES "src/(io|text|model|view|tensor|op|nn|dist)/|heed/(text|model|view|nn|train|translate)[.]h")
      set(beyond ON)
    elseif(EXISTS ${folder}/${name} AND NOT name MATCHES "src/|heed/")
      heed_beyond_core(${folder}/${name} beyond)
    elseif(EXISTS ${CMAKE_SOURCE_DIR}/tests/${name})
      heed_beyond_core(${CMAKE_SOURCE_DIR}/tests/${name} beyond)
    endif()
    if(beyond)
      set(${result} ON PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} OFF PARENT_SCOPE)
endfunction()

# The long ones begin first, so that no core waits for the last of them.
function(heed_long_tests_first)
  foreach(name one_line_build one_line_build_clang one_line_build_unoptimised cli_bench gemm chart cli_experiment cli cli_train cli_label cache attention_gradcheck operations page learner_translate cli_seq2seq)
    if(TEST ${name})
      set_tests_properties(${name} PROPERTIES COST 100)
    endif()
  endforeach()
endfunction()

file(GLOB unit_tests CONFIGURE_DEPENDS tests/unit/*.c tests/complaints/*.c)
foreach(source ${unit_tests})
  heed_beyond_core(${source} beyond_core)
  if(HEED_CORE_ONLY AND beyond_core)
    continue()
  endif()
  get_filename_component(name ${source} NAME_WE)
  heed_test_program(test_${name} ${source})
  add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
  set(labels unit)
  if(name MATCHES "_smollm2$|^model_bits$")
    list(APPEND labels whole_model)
  endif()
  # Threads that wait by spinning take the processor from the very thread they wait for when tests run side by side.
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "${labels}" ENVIRONMENT OMP_WAIT_POLICY=passive)
endforeach()

heed_test_program(levels tests/levels.c)

# The core alone, whatever else is built.
add_executable(promise_core tests/promises/core.c)
target_link_libraries(promise_core PRIVATE heed_core)
set_target_properties(promise_core PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
add_test(NAME core COMMAND promise_core)
set_tests_properties(core PROPERTIES LABELS unit)

if(HEED_CORE_ONLY)
  heed_long_tests_first()
  return()
endif()

# The page in a real browser; without Chromium the test fails and says how to install it.
heed_test_program(page_sample tests/support/page_sample.c)
find_package(Python3 COMPONENTS Interpreter REQUIRED)
add_test(NAME page COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/page.py $<TARGET_FILE:page_sample>)
set_tests_properties(page PROPERTIES TIMEOUT 600)

# The program from outside: commands, output, exit codes.
foreach(name cli cli_attend cli_bench cli_experiment cli_label cli_pairs cli_pattern cli_seq2seq cli_train)
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/${name}.py)
  set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS cli
                       ENVIRONMENT "HEED=$<TARGET_FILE:heed>;HEED_TEST_DATA=${CMAKE_SOURCE_DIR}/tests/data;OMP_WAIT_POLICY=passive;PYTHONDONTWRITEBYTECODE=1;HEED_SANITIZE=${HEED_SANITIZE}")
endforeach()

# The tutorial: its commands and listings, with trainings cut short (in full: make tutorial).
add_test(NAME tutorial COMMAND ${CMAKE_SOURCE_DIR}/tests/tutorial.py ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND})
set_tests_properties(tutorial PROPERTIES TIMEOUT 600 ENVIRONMENT OMP_WAIT_POLICY=passive)

# Measurements: built, so that they keep compiling, but not run.
file(GLOB benches CONFIGURE_DEPENDS tests/bench_*.c)
foreach(source ${benches})
  get_filename_component(name ${source} NAME_WE)
  heed_test_program(${name} ${source})
endforeach()

include(tests/promises.cmake)
heed_long_tests_first()
