# Every tests/unit/NAME.c is one cmocka program, test NAME. It links the static library, whose hidden symbols it may use, and finds its
# fixtures under HEED_TEST_DATA. Models that are fetched (tools/get-models) lie under HEED_MODELS; a missing one fails the test that needs it.
# Labels: `unit` for all of them, and `whole_model` for those named *_smollm2.c, which run all of a fetched model: .ci/run leaves these out under
# sanitizers and at the scalar level, where they would take minutes.
if(BUILD_TESTING)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  if(DEFINED ENV{HEED_MODELS})
    set(default_models $ENV{HEED_MODELS})
  elseif(DEFINED ENV{XDG_CACHE_HOME})
    set(default_models $ENV{XDG_CACHE_HOME}/heed/models)
  else()
    set(default_models $ENV{HOME}/.cache/heed/models)
  endif()
  set(HEED_MODELS ${default_models} CACHE PATH "where tools/get-models keeps models")
  file(GLOB unit_tests CONFIGURE_DEPENDS tests/unit/*.c)
  foreach(source ${unit_tests})
    get_filename_component(name ${source} NAME_WE)
    add_executable(test_${name} ${source})
    target_link_libraries(test_${name} PRIVATE heed_static PkgConfig::CMOCKA)
    target_include_directories(test_${name} PRIVATE tests)
    target_compile_definitions(test_${name} PRIVATE _GNU_SOURCE HEED_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data" HEED_MODELS="${HEED_MODELS}")
    target_compile_options(test_${name} PRIVATE -Wno-missing-prototypes)
    set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
    add_test(NAME ${name} COMMAND test_${name} WORKING_DIRECTORY ${CMAKE_BINARY_DIR})
    set(labels unit)
    if(name MATCHES "_smollm2$")
      list(APPEND labels whole_model)
    endif()
    # Threads that wait by spinning take the processor from the very thread they wait for when tests run side by side.
    set_tests_properties(${name} PROPERTIES TIMEOUT 600 LABELS "${labels}" ENVIRONMENT OMP_WAIT_POLICY=passive)
  endforeach()

  add_executable(levels tests/levels.c)
  target_link_libraries(levels PRIVATE heed_static)
  set_target_properties(levels PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)

  # The page in a real browser; without Chromium the test fails and says how to install it.
  add_executable(page_sample tests/support/page_sample.c)
  target_link_libraries(page_sample PRIVATE heed_static)
  set_target_properties(page_sample PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  find_package(Python3 COMPONENTS Interpreter REQUIRED)
  add_test(NAME page COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tests/page.py $<TARGET_FILE:page_sample>)
  set_tests_properties(page PROPERTIES TIMEOUT 600)

  # The program from outside: commands, output, exit codes.
  add_test(NAME cli COMMAND ${CMAKE_SOURCE_DIR}/tests/cli.py)
  set_tests_properties(cli PROPERTIES TIMEOUT 600 LABELS cli
                       ENVIRONMENT "HEED=$<TARGET_FILE:heed>;HEED_TEST_DATA=${CMAKE_SOURCE_DIR}/tests/data;OMP_WAIT_POLICY=passive")

  # Measurements: built, so that they keep compiling, but not run.
  file(GLOB benches CONFIGURE_DEPENDS tests/bench_*.c)
  foreach(source ${benches})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE heed_static PkgConfig::CMOCKA)
    target_compile_options(${name} PRIVATE -Wno-missing-prototypes)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  endforeach()

  include(tests/promises.cmake)
endif()
