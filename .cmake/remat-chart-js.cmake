# SPDX-License-Identifier: BSL-1.0
# remat_embed_chart_js(SCRIPT HEADER): writes the minified Chart.js file SCRIPT as the C++ header HEADER. Its first
# comment, the notice that the MIT licence asks to keep, stays in the text.
function(remat_embed_chart_js script header)
  file(READ "${script}" rest)
  if(rest MATCHES "\\)chart_js\"")
    message(FATAL_ERROR "${script} contains the delimiter of the raw strings that are to hold it")
  endif()
  # Compilers bound the length of one literal. Cutting behind a semicolon never splits a character of several bytes.
  set(longest 16000)
  set(parts)
  string(LENGTH "${rest}" left)
  while(left GREATER longest)
    string(SUBSTRING "${rest}" 0 ${longest} part)
    string(FIND "${part}" ";" cut REVERSE)
    if(cut LESS 0)
      message(FATAL_ERROR "${script}: ${longest} characters without a semicolon; is this the minified file?")
    endif()
    math(EXPR cut "${cut} + 1")
    string(SUBSTRING "${rest}" 0 ${cut} part)
    string(SUBSTRING "${rest}" ${cut} -1 rest)
    string(APPEND parts "    R\"chart_js(${part})chart_js\",\n")
    string(LENGTH "${rest}" left)
  endwhile()
  string(APPEND parts "    R\"chart_js(${rest})chart_js\",\n")
  file(CONFIGURE OUTPUT "${header}" @ONLY CONTENT [==[// SPDX-License-Identifier: BSL-1.0 AND MIT
// Made by the build from Chart.js (https://www.chartjs.org), which is under the MIT licence; its notice stands below.
#pragma once

#include <string_view>

#include "remat/version.hpp"

namespace REMAT_NAMESPACE {

/// The script of Chart.js, minified: the concatenation of these parts.
inline constexpr std::string_view chart_js_parts[] = {
@parts@};

}  // namespace REMAT_NAMESPACE
]==])
endfunction()
