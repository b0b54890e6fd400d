// SPDX-License-Identifier: BSL-1.0
// expected: remat needs std::stop_token, as in libstdc++ 12 or newer
// flags: -Iwithout_stop_token
// lines: 10
#include "remat/core/run.hpp"

int main() {}
