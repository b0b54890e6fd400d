// SPDX-License-Identifier: BSL-1.0
#include "remat/mip/detail/solution_file.hpp"

#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "remat/core/error.hpp"

namespace {

using remat::mip_status;
using values = std::vector<double>;
using namespace remat::detail;

mip_solution_file read(const std::string& text, std::size_t columns = 3) {
  std::istringstream in(text);
  return read_mip_solution(in, columns, "answer.txt");
}
std::string refusal(const std::string& text, std::size_t columns = 3) {
  try {
    (void)read(text, columns);
  } catch (const remat::bad_argument& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("CBC's solution files") {
  const mip_solution_file best = read(
      "Optimal - objective value -5.00000000\n      1 c1                     4                      -2\n"
      "**    2 c2                     2.5                       0\n");
  CHECK(best.status == mip_status::optimal);
  CHECK(best.values == values{0, 4, 2.5});
  const mip_solution_file late = read("Stopped on time - objective value 3\n 0 c0 1 0\n");
  CHECK(late.status == mip_status::feasible);
  CHECK(late.values == values{1, 0, 0});
  const mip_solution_file none =
      read("Stopped on time (no integer solution - continuous used) - objective value 1\n 0 c0 0.5 0\n");
  CHECK(none.status == mip_status::no_solution);
  CHECK(none.values.empty());
  CHECK(read("Infeasible - objective value 0.1\n 0 c0 1 0\n").status == mip_status::infeasible);
  CHECK(read("Integer infeasible - objective value 0\n").status == mip_status::infeasible);
  CHECK(read("Unbounded - objective value 0\n").status == mip_status::unbounded);
}

TEST_CASE("GLPK's raw solution files, of integer programs and of linear ones") {
  const mip_solution_file best = read("c Problem: a\nc\ns mip 1 3 o -11\ni 1 4\nj 1 0\nj 2 4\nj 3 2.5\ne o f\n");
  CHECK(best.status == mip_status::optimal);
  CHECK(best.values == values{0, 4, 2.5});
  CHECK(read("s mip 1 3 f 2\nj 1 1\ne o f\n").status == mip_status::feasible);
  CHECK(read("s mip 1 3 n 0\nj 1 0\ne o f\n").status == mip_status::infeasible);
  CHECK(read("s mip 1 3 u 0\nj 1 0\ne o f\n").status == mip_status::no_solution);
  CHECK(read("s mip 1 3 u 0\nj 1 0\ne o f\n").values.empty());
  const mip_solution_file linear = read("s bas 1 3 f f 2\ni 1 b 1 0\nj 1 b 1 0\nj 2 l 0 1\nj 3 u 8 -1\ne o f\n");
  CHECK(linear.status == mip_status::optimal);
  CHECK(linear.values == values{1, 0, 8});
  CHECK(read("s bas 1 3 n n 0\ne o f\n").status == mip_status::infeasible);
  CHECK(read("s bas 1 3 f n 0\nj 1 b 1 0\ne o f\n").status == mip_status::unbounded);
}

TEST_CASE("HiGHS's raw solution files") {
  const std::string begin = "Model status\n", values_follow = "\n# Primal solution values\nFeasible\nObjective -5\n";
  const mip_solution_file best =
      read(begin + "Optimal\n" + values_follow + "# Columns 3\nc0 0\nc1 4\nc2 2.5\n# Rows 1\nr0 4\n");
  CHECK(best.status == mip_status::optimal);
  CHECK(best.values == values{0, 4, 2.5});
  CHECK(read(begin + "Time limit reached\n" + values_follow + "# Columns 3\nc0 1\nc1 0\nc2 0\n").status ==
        mip_status::feasible);
  CHECK(read(begin + "Infeasible\n\n# Primal solution values\nNone\n").status == mip_status::infeasible);
  CHECK(read(begin + "Time limit reached\n\n# Primal solution values\nNone\n").status == mip_status::no_solution);
  CHECK(read(begin + "Time limit reached\n\n# Primal solution values\nNone\n").values.empty());
}

TEST_CASE("plain solution files") {
  const mip_solution_file best = read("# of my solver\nstatus optimal\nc1 4\n\nc2 2.5e0\n");
  CHECK(best.status == mip_status::optimal);
  CHECK(best.values == values{0, 4, 2.5});
  CHECK(read("status feasible\n").values == values{0, 0, 0});
  CHECK(read("status infeasible\nc0 1\n").values.empty());
  CHECK(read("status no_solution\n").status == mip_status::no_solution);
  CHECK(read("status unbounded\n").status == mip_status::unbounded);
}

TEST_CASE("what cannot be read is refused with the line and what would be right") {
  CHECK(refusal("") == "answer.txt, line 0: the file is empty");
  CHECK(refusal("\n \n") == "answer.txt, line 2: the file is empty");
  CHECK(refusal("hello\n") ==
        "answer.txt, line 1: \"hello\" is the first line of no solution file of CBC, GLPK or HiGHS, and not \"status "
        "WORD\"");
  CHECK(refusal("status optimal\nc3 1\n") == "answer.txt, line 2: there is no column 3; the model has 3");
  CHECK(refusal("status optimal\nx1 1\n") == "answer.txt, line 2: \"x1\" should be a column, c<number>");
  CHECK(refusal("status optimal\nc1\n") ==
        "answer.txt, line 2: \"c1\" should be \"status WORD\" or a column and its value");
  CHECK(refusal("status optimal\nc1 inf\n") == "answer.txt, line 2: \"inf\" should be a finite number");
  CHECK(refusal("status optimal\nc1 1x\n") == "answer.txt, line 2: \"1x\" should be a finite number");
  CHECK(refusal("status done\n") ==
        "answer.txt, line 1: \"done\" should be optimal, feasible, infeasible, unbounded or no_solution");
  CHECK(refusal("# only\n") == "answer.txt, line 1: the file has no line \"status WORD\"");
  CHECK(refusal("s mip 1 3 o 0\nj 0 1\n") == "answer.txt, line 2: columns count from 1");
  CHECK(refusal("s mip 1 3 o 0\nj 4 1\n") == "answer.txt, line 2: there is no column 3; the model has 3");
  CHECK(refusal("s ipt 1 3 o 0\n") == "answer.txt, line 1: \"ipt\" should be mip or bas");
  CHECK(refusal("Optimal - objective value 1\n 0 c0\n") ==
        "answer.txt, line 2: \" 0 c0\" should be a number, a column and its value");
  CHECK(refusal("Model status\n") == "answer.txt, line 1: the file ends; the model's status should follow");
  CHECK(refusal("Model status\nOptimal\n# Primal solution values\nFeasible\n# Columns 2\n") ==
        "answer.txt, line 5: there are 2 columns; the model has 3");
  CHECK(refusal("Model status\nOptimal\n# Primal solution values\nFeasible\n# Columns 3\nc0 1\n") ==
        "answer.txt, line 6: the file ends; a line for each column should follow");
}
