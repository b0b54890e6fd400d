// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// The definitions of every declaration that needs nlohmann-json. In the compiled form (docs/compiled.md) exactly one
/// source file of a program includes this.
#include "remat/io/impl/json.hpp"
