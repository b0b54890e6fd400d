// SPDX-License-Identifier: BSL-1.0
#include "every_header.hpp"

double time_of_one_operation() {
  remat::training_graph g("one operation");
  const remat::tensor_id t = g.add_tensor({.name = "t", .bytes = 8});
  g.add_operation({.name = "make", .outputs = {t}});
  g.add_final_output(t);
#ifdef CONSUMER_HAS_JSON  // a definition of a component
  if (remat::to_json(remat::schedule_file{}).empty()) return 0;
#endif
  return remat::problem(g, remat::unit_cost{}).graph().baseline_time;
}
