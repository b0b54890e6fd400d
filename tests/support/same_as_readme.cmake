# SPDX-License-Identifier: BSL-1.0
# cmake -DREADME=… -DEXAMPLE=… -P same_as_readme.cmake: the README's first block of C++ is EXAMPLE, below its licence line.
file(READ "${README}" readme)
file(READ "${EXAMPLE}" example)
string(REGEX REPLACE "^// SPDX[^\n]*\n" "" example "${example}")
string(FIND "${readme}" "```cpp\n${example}```\n" found)
if(found LESS 0)
  message(FATAL_ERROR "no block of C++ in ${README} is ${EXAMPLE}")
endif()
