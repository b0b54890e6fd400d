# SPDX-License-Identifier: BSL-1.0
# cmake -DREADME=… -DEXAMPLE=… -DEXPECTED=… -P same_as_readme.cmake: a block of C++ in the README is EXAMPLE, below its
# licence line, and a plain block is what it prints, EXPECTED.
file(READ "${README}" readme)
file(READ "${EXAMPLE}" example)
file(READ "${EXPECTED}" expected)
string(REGEX REPLACE "^// SPDX[^\n]*\n" "" example "${example}")
string(FIND "${readme}" "```cpp\n${example}```\n" found)
if(found LESS 0)
  message(FATAL_ERROR "no block of C++ in ${README} is ${EXAMPLE}")
endif()
string(FIND "${readme}" "```\n${expected}```\n" found)
if(found LESS 0)
  message(FATAL_ERROR "no block in ${README} is ${EXPECTED}")
endif()
