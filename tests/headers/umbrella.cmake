# SPDX-License-Identifier: BSL-1.0
# cmake -DINCLUDE=include/remat -DCOMPONENTS=.cmake/remat-components.cmake -P umbrella.cmake: remat.hpp includes every
# header that needs the standard library alone, and no other.
cmake_minimum_required(VERSION 3.25)
include("${COMPONENTS}")

set(expected)
file(GLOB_RECURSE headers RELATIVE "${INCLUDE}" "${INCLUDE}/*.hpp" "${INCLUDE}/*.cuh")
foreach(header IN LISTS headers)
  remat_component_of("${header}" component)
  if(component STREQUAL "core" AND NOT header STREQUAL "remat.hpp")
    list(APPEND expected "${header}")
  endif()
endforeach()

file(STRINGS "${INCLUDE}/remat.hpp" included REGEX "^#include \"remat/")
list(TRANSFORM included REPLACE "^#include \"remat/([^\"]+)\".*" "\\1")

set(missing ${expected})
list(REMOVE_ITEM missing ${included})
set(extra ${included})
list(REMOVE_ITEM extra ${expected})
foreach(header IN LISTS missing)
  message(SEND_ERROR "remat.hpp lacks:  #include \"remat/${header}\"")
endforeach()
foreach(header IN LISTS extra)
  message(SEND_ERROR "remat.hpp includes remat/${header}, which is no header of the core")
endforeach()
