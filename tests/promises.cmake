# Tests of what heed promises about itself rather than about numbers: layers, formatting, headers, symbols, the one-line build, installing.
# Each is a script under tests/promises/ that is given the source folder and what it needs of the build.
add_test(NAME check_layers COMMAND ${CMAKE_SOURCE_DIR}/tools/check-layers)
add_test(NAME check_layers_finds COMMAND ${CMAKE_SOURCE_DIR}/tests/promises/layers.py ${CMAKE_SOURCE_DIR})
add_test(NAME check_format COMMAND ${CMAKE_SOURCE_DIR}/tools/check-format)
add_test(NAME headers COMMAND ${CMAKE_SOURCE_DIR}/tests/promises/headers ${CMAKE_SOURCE_DIR})
