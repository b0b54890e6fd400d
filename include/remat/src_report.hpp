// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The definitions of every declaration of the HTML report. In the compiled form (docs/compiled.md) exactly one source
/// file of a program includes this.
#include "remat/render/impl/report_graph.hpp"
#include "remat/render/impl/report_html.hpp"
