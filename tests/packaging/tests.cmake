# SPDX-License-Identifier: BSL-1.0
# The ways to use the library without CMake, and its recipes for package managers.

find_program(REMAT_PKG_CONFIG pkg-config DOC "pkg-config, for a test of remat.pc")
find_program(REMAT_CONAN conan DOC "Conan 2, for a test of its recipe")

# remat_packaging_test(NAME [NEEDS PROGRAM…] ARGUMENTS ARGUMENT…): the script NAME.py, skipped if a variable REMAT_PROGRAM
# is not set.
function(remat_packaging_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "NEEDS;ARGUMENTS")
  set(missing)
  foreach(program PYTHON3 ${arg_NEEDS})
    if(NOT REMAT_${program})
      list(APPEND missing "${program}")
    endif()
  endforeach()
  if(missing)
    string(TOLOWER "${missing}" missing)
    add_test(NAME packaging.${name} COMMAND "${CMAKE_COMMAND}" -E echo "skipped: there is no ${missing}")
    set_tests_properties(packaging.${name} PROPERTIES SKIP_REGULAR_EXPRESSION "^skipped: ")
  else()
    add_test(NAME packaging.${name} COMMAND "${REMAT_PYTHON3}" -B "${CMAKE_CURRENT_SOURCE_DIR}/packaging/${name}.py" ${arg_ARGUMENTS})
  endif()
  set_tests_properties(packaging.${name} PROPERTIES LABELS gate TIMEOUT 600)
endfunction()

set(compilers "${CMAKE_CXX_COMPILER}")
if(REMAT_clangxx AND NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  list(APPEND compilers "${REMAT_clangxx}")
endif()
remat_packaging_test(single_header ARGUMENTS ${compilers})
remat_packaging_test(pkg_config NEEDS PKG_CONFIG INSTALL
  ARGUMENTS "${CMAKE_COMMAND}" "${PROJECT_BINARY_DIR}" "${CMAKE_CXX_COMPILER}")
remat_packaging_test(conan NEEDS CONAN ARGUMENTS "${REMAT_CONAN}" "${CMAKE_CXX_COMPILER}")

set(json_there OFF)
if("json" IN_LIST remat_components)
  set(json_there ON)
endif()
add_test(NAME packaging.vcpkg_port COMMAND "${CMAKE_COMMAND}" "-DPORT_DIR=${PROJECT_SOURCE_DIR}/docs/packaging/vcpkg/remat"
  "-DSCRATCH=${CMAKE_CURRENT_BINARY_DIR}/packaging/vcpkg_port" "-DGENERATOR=${CMAKE_GENERATOR}" "-DCOMPILER=${CMAKE_CXX_COMPILER}"
  -DJSON_THERE=${json_there} -P "${CMAKE_CURRENT_SOURCE_DIR}/packaging/vcpkg_port.cmake")
set_tests_properties(packaging.vcpkg_port PROPERTIES LABELS gate TIMEOUT 600)

if(REMAT_INSTALL)
  add_test(NAME packaging.version_file COMMAND "${CMAKE_COMMAND}" "-DFILE=${PROJECT_BINARY_DIR}/remat-config-version.cmake"
    "-DVERSION=${PROJECT_VERSION}" -P "${CMAKE_CURRENT_SOURCE_DIR}/packaging/version_file.cmake")
endif()
