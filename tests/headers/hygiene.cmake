# SPDX-License-Identifier: BSL-1.0
# cmake -DINCLUDE=include/remat -DCOMPONENTS=.cmake/remat-components.cmake -P hygiene.cmake: what every header keeps
# to. The sources that headers cite stand in docs/references.bib.
cmake_minimum_required(VERSION 3.25)
include("${COMPONENTS}")

file(READ "${INCLUDE}/../../docs/references.bib" references)
file(GLOB_RECURSE headers RELATIVE "${INCLUDE}" "${INCLUDE}/*.hpp" "${INCLUDE}/*.cuh")
foreach(header IN LISTS headers)
  file(STRINGS "${INCLUDE}/${header}" first LIMIT_COUNT 2)
  if(NOT first STREQUAL "// SPDX-License-Identifier: BSL-1.0;#pragma once")
    message(SEND_ERROR "${header}: the first two lines must be the licence identifier and #pragma once")
  endif()
  file(READ "${INCLUDE}/${header}" text)
  if(text MATCHES "using namespace")
    message(SEND_ERROR "${header}: a using-directive")
  endif()
  # The compilers that are supported lack these in C++20 mode; what is for nvcc needs g++ as host compiler.
  if(text MATCHES "#include <(format|expected|print)>" OR
      (NOT header MATCHES "\\.cuh$" AND text MATCHES "#include <(source_location)>"))
    message(SEND_ERROR "${header}: ${CMAKE_MATCH_0}, which g++ 12 or clang 14 lacks")
  endif()
  remat_component_of("${header}" component)
  if(component STREQUAL "core" AND NOT header MATCHES "^io/" AND
      text MATCHES "#include <(iostream|fstream|cstdio|iomanip)>")
    message(SEND_ERROR "${header}: ${CMAKE_MATCH_0}; headers of the core, but for io/, neither read nor write streams")
  endif()
  string(REGEX MATCHALL "[\\]cite +[A-Za-z0-9]+" citations "${text}")
  foreach(citation IN LISTS citations)
    string(REGEX REPLACE ".*cite +" "" key "${citation}")
    if(NOT references MATCHES "@[a-z]+{${key},")
      message(SEND_ERROR "${header}: cites ${key}, which docs/references.bib lacks")
    endif()
  endforeach()
  if(header MATCHES "(^|/)(detail|util|utils|impl)/")
    message(SEND_ERROR "${header}: no such folders; a helper gets a name and a home")
  endif()
endforeach()
