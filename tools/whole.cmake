# The whole of heed on top of the core: the libraries heed::heed (shared) and heed::heed_static, and the program.
find_package(PkgConfig REQUIRED)
pkg_check_modules(HEED_DEPENDENCIES REQUIRED IMPORTED_TARGET jansson zlib libpng libzip libutf8proc libpcre2-8)

file(GLOB HEED_REST_SOURCES CONFIGURE_DEPENDS src/tensor/*.c src/op/*.c src/nn/*.c src/io/*.c src/text/*.c src/model/*.c src/model/families/*.c src/view/*.c)
include(tools/embed.cmake)
heed_embed(HEED_PAGE_SOURCE ${CMAKE_SOURCE_DIR}/src/view/page)
heed_objects(heed_rest_objects ${HEED_REST_SOURCES} ${HEED_PAGE_SOURCE})
target_link_libraries(heed_rest_objects PRIVATE PkgConfig::HEED_DEPENDENCIES)

add_library(heed_static STATIC $<TARGET_OBJECTS:heed_core_objects> $<TARGET_OBJECTS:heed_rest_objects>)
add_library(heed_shared SHARED $<TARGET_OBJECTS:heed_core_objects> $<TARGET_OBJECTS:heed_rest_objects>)
heed_library(heed_static heed heed_static)
heed_library(heed_shared heed heed)
set_target_properties(heed_shared PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
# Installed, the libraries are named plainly, so that the package needs no pkg-config.
target_link_libraries(heed_static PUBLIC $<BUILD_INTERFACE:PkgConfig::HEED_DEPENDENCIES> "$<INSTALL_INTERFACE:${HEED_DEPENDENCIES_LIBRARIES}>")
target_link_libraries(heed_shared PRIVATE PkgConfig::HEED_DEPENDENCIES m)
if(HEED_USES_OPENMP)
  target_link_libraries(heed_shared PRIVATE OpenMP::OpenMP_C)
endif()

# Hidden visibility already exports HEED_API names only; where the linker takes a version script, symbols carry the version too.
check_linker_flag(C -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/heed.map HEED_HAS_VERSION_SCRIPT)
if(HEED_HAS_VERSION_SCRIPT)
  target_link_options(heed_shared PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/src/heed.map)
  set_target_properties(heed_shared PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/src/heed.map)
endif()

# ---- the program ----
file(GLOB HEED_CLI_SOURCES CONFIGURE_DEPENDS cli/*.c)
if(HEED_CLI_SOURCES)
  add_executable(heed ${HEED_CLI_SOURCES})
  target_link_libraries(heed PRIVATE heed_static)
  install(TARGETS heed RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(NOT CMAKE_CROSSCOMPILING) # the manual page and the completions come from the program's own tables
    add_custom_command(TARGET heed POST_BUILD
                       COMMAND heed help --man > ${CMAKE_BINARY_DIR}/heed.1
                       COMMAND heed completion bash > ${CMAKE_BINARY_DIR}/heed.bash
                       COMMAND heed completion zsh > ${CMAKE_BINARY_DIR}/heed.zsh
                       COMMAND heed completion fish > ${CMAKE_BINARY_DIR}/heed.fish)
    install(FILES ${CMAKE_BINARY_DIR}/heed.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
    install(FILES ${CMAKE_BINARY_DIR}/heed.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heed)
    install(FILES ${CMAKE_BINARY_DIR}/heed.zsh DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions RENAME _heed)
    install(FILES ${CMAKE_BINARY_DIR}/heed.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
  endif()
endif()
