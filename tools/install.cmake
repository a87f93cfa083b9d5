# What `make install` lays down: headers, libraries, the CMake package `heed` (targets heed::core, heed::heed, heed::heed_static) and the
# pkg-config modules heed and heed-core. Both descriptions find their files relative to themselves, so an installed tree may be moved.
include(CMakePackageConfigHelpers)

if(HEED_CORE_ONLY)
  set(headers PATTERN heed.h PATTERN types.h)
  set(libraries heed_core)
else()
  set(headers PATTERN *.h)
  set(libraries heed_core heed_static heed_shared)
endif()
install(DIRECTORY include/heed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING ${headers})
install(TARGETS ${libraries} EXPORT heed LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

set(HEED_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
install(EXPORT heed NAMESPACE heed:: FILE heedConfig.cmake DESTINATION ${HEED_CMAKE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/heedConfigVersion.cmake DESTINATION ${HEED_CMAKE_DIR})

# heed_pkgconfig(NAME DESCRIPTION LIBRARIES): one .pc file; LIBRARIES is what a static link needs besides. They are named, not required as modules,
# because a program that links the shared library must build without their development packages.
file(RELATIVE_PATH HEED_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" HEED_PC_TO_PREFIX ${HEED_PC_TO_PREFIX})
function(heed_pkgconfig name description libraries)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.pc "prefix=\${pcfiledir}/${HEED_PC_TO_PREFIX}
includedir=\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}
libdir=\${prefix}/${CMAKE_INSTALL_LIBDIR}

Name: ${name}
Description: ${description}
Version: ${PROJECT_VERSION}
Cflags: -I\${includedir}
Libs: -L\${libdir} -l${name}
Libs.private: ${libraries}
")
  install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endfunction()

set(core_libraries "-lm")
if(HEED_USES_OPENMP)
  string(APPEND core_libraries " ${OpenMP_C_FLAGS}")
endif()
heed_pkgconfig(heed-core "the attention core of heed alone" "${core_libraries}")
if(NOT HEED_CORE_ONLY)
  list(TRANSFORM HEED_DEPENDENCIES_LIBRARIES PREPEND -l OUTPUT_VARIABLE rest_libraries)
  list(JOIN rest_libraries " " rest_libraries)
  heed_pkgconfig(heed "${PROJECT_DESCRIPTION}" "${rest_libraries} ${core_libraries}")
endif()
