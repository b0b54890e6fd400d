// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file
/// `operation_sequence` stands in `remat/order/least_peak.hpp`.

#include "remat/order/least_peak.hpp"
