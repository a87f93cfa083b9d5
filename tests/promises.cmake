# Tests of what heed promises about itself rather than about numbers: layers, formatting, headers, symbols, the one-line build, installing.
# Each is a script under tests/promises/ that is given the source folder and what it needs of the build.
add_test(NAME check_layers COMMAND ${CMAKE_SOURCE_DIR}/tools/check-layers)
add_test(NAME check_layers_finds COMMAND ${CMAKE_SOURCE_DIR}/tests/promises/layers.py ${CMAKE_SOURCE_DIR})
add_test(NAME check_format COMMAND ${CMAKE_SOURCE_DIR}/tools/check-format)

foreach(example attend layer train)
  add_executable(example_${example} examples/${example}.c)
  target_link_libraries(example_${example} PRIVATE heed_shared)
  set_target_properties(example_${example} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME example_${example} COMMAND example_${example})
endforeach()
set_tests_properties(example_train PROPERTIES PASS_REGULAR_EXPRESSION "unseen words: 3[01][0-9] of 320 right|unseen words: 320 of 320 right"
                     ENVIRONMENT OMP_WAIT_POLICY=passive)

if(CMAKE_SYSTEM_NAME STREQUAL Linux) # steps through its child by ptrace
  add_executable(count_instructions tests/count_instructions.c)
  target_link_libraries(count_instructions PRIVATE heed_core)
  set_target_properties(count_instructions PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME instructions COMMAND count_instructions)
  set_tests_properties(instructions PROPERTIES TIMEOUT 600)
endif()

set(promises ${CMAKE_SOURCE_DIR}/tests/promises)
set(one_line_build ${promises}/one_line_build ${CMAKE_SOURCE_DIR} $<TARGET_FILE:promise_core>)
add_test(NAME one_line_build COMMAND ${one_line_build} cc -O2 -fopenmp)
add_test(NAME one_line_build_unoptimised COMMAND ${one_line_build} cc -O0)
add_test(NAME one_line_build_clang COMMAND ${one_line_build} clang -O2)
add_test(NAME headers COMMAND ${promises}/headers ${CMAKE_SOURCE_DIR})
add_test(NAME symbols COMMAND ${promises}/symbols ${CMAKE_SOURCE_DIR} $<TARGET_FILE:heed_shared> $<TARGET_FILE:heed_static> ${PROJECT_VERSION})
add_test(NAME pattern_page COMMAND ${promises}/pattern_page.py ${CMAKE_SOURCE_DIR} $<TARGET_FILE:heed_core> ${CMAKE_C_COMPILER} -lm -lcmocka)
add_test(NAME install COMMAND ${promises}/install ${CMAKE_SOURCE_DIR} ${CMAKE_BINARY_DIR} ${CMAKE_COMMAND})
add_test(NAME bindings COMMAND ${promises}/bindings ${CMAKE_SOURCE_DIR} $<TARGET_FILE:heed_shared> ${CMAKE_C_COMPILER})
add_test(NAME readme COMMAND ${promises}/readme ${CMAKE_SOURCE_DIR})
add_test(NAME tools COMMAND ${promises}/tools ${CMAKE_SOURCE_DIR} ${HEED_MODELS})
